#include "allhands/engine/peer_watch.hpp"

#include "allhands/base/wait.hpp"

namespace allhands {

bool PeerWatch::was_gone_lately(int peer) {
  if (transport_.presence(peer) != Presence::Here) return true;
  if (peer == members_.rank) return false;
  Look& look = looks_[static_cast<std::size_t>(peer)];
  const auto now = Deadline::Clock::now();
  if (!look.is_gone && now - look.at > Wait::kSlice) {
    look.is_gone = is_gone(peer);
    look.at = now;
  }
  return look.is_gone;
}

std::vector<int> PeerWatch::gone() const {
  std::vector<int> peers;
  for (int peer = 0; peer < members_.size(); ++peer)
    if (peer != members_.rank && is_gone(peer)) peers.push_back(peer);
  return peers;
}

std::optional<Error> PeerWatch::abortion(int peer) const {
  if (transport_.presence(peer) != Presence::Aborted) return std::nullopt;
  const std::string who = "group '" + members_.name + "': ";
  if (const std::optional<Error> told = failure())
    return Error(told->kind(), who + told->what(), told->ranks());
  return Error(ErrorKind::Backend, who + members_.describe(peer) + " aborted it");
}

std::optional<Error> PeerWatch::abortion() const {
  for (int peer = 0; peer < members_.size(); ++peer)
    if (peer != members_.rank)
      if (std::optional<Error> error = abortion(peer)) return error;
  const std::optional<Error> broken = failure();
  if (!broken) return std::nullopt;
  return Error(broken->kind(),
               "group '" + members_.name + "' is broken since: " + broken->what(),
               broken->ranks());
}

}  // namespace allhands
