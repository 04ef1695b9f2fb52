#include "allhands/engine/peer_watch.hpp"

namespace allhands {
namespace {

// The kind that this rank gives another rank's error: errors about ranks keep their
// kind.
ErrorKind told_kind(ErrorKind kind) {
  const bool is_of_ranks = kind == ErrorKind::RankFailed ||
                           kind == ErrorKind::Mismatch || kind == ErrorKind::Timeout;
  return is_of_ranks ? kind : ErrorKind::Backend;
}

}  // namespace

bool PeerWatch::is_alone() const {
  for (int peer = 0; peer < members_.size(); ++peer)
    if (peer != members_.rank && !was_gone_lately(peer)) return false;
  return true;
}

std::vector<std::pair<int, std::string>> PeerWatch::endings() const {
  std::vector<std::pair<int, std::string>> found;
  for (int peer = 0; peer < members_.size(); ++peer) {
    if (peer == members_.rank) continue;
    if (transport_.has_died(peer)) found.emplace_back(peer, "");
    if (const auto error = abortion(peer)) found.emplace_back(peer, error->what());
  }
  return found;
}

std::optional<Error> PeerWatch::abortion(int peer) const {
  if (transport_.presence(peer) != Presence::Aborted) return std::nullopt;
  const std::string who = "group '" + members_.name + "': ";
  if (const std::optional<Error> told = failure()) {
    const std::string text = told->what();
    return told->retold(text.starts_with(who) ? text : who + text);
  }
  if (const std::optional<Error> reason = transport_.abort_reason(peer))
    return reason->retold(
        told_kind(reason->kind()),
        who + reported_by(members_.describe(peer), to_pass_on(reason->what())));
  return Error(ErrorKind::Backend, "group " + members_.quoted() + ": " +
                                       members_.describe(peer) + " aborted it");
}

std::optional<Error> PeerWatch::abortion() const {
  for (int peer = 0; transport_.has_aborted() && peer < members_.size(); ++peer)
    if (peer != members_.rank)
      if (std::optional<Error> error = abortion(peer)) return error;
  const std::optional<Error> broken = failure();
  if (!broken) return std::nullopt;
  return broken->retold("group '" + members_.name +
                        "' is broken since: " + broken->what());
}

}  // namespace allhands
