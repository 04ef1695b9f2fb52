#include "allhands/engine/peer_watch.hpp"

namespace allhands {

bool PeerWatch::is_alone() const {
  for (int peer = 0; peer < members_.size(); ++peer)
    if (peer != members_.rank && !was_gone_lately(peer)) return false;
  return true;
}

std::optional<Error> PeerWatch::abortion(int peer) const {
  if (transport_.presence(peer) != Presence::Aborted) return std::nullopt;
  const std::string who = "group '" + members_.name + "': ";
  std::optional<Error> told = failure();
  if (!told) told = transport_.abort_reason(peer);
  if (told) return Error(told->kind(), who + told->what(), told->ranks());
  return Error(ErrorKind::Backend, who + members_.describe(peer) + " aborted it");
}

std::optional<Error> PeerWatch::abortion() const {
  for (int peer = 0; transport_.has_aborted() && peer < members_.size(); ++peer)
    if (peer != members_.rank)
      if (std::optional<Error> error = abortion(peer)) return error;
  const std::optional<Error> broken = failure();
  if (!broken) return std::nullopt;
  return Error(broken->kind(),
               "group '" + members_.name + "' is broken since: " + broken->what(),
               broken->ranks());
}

}  // namespace allhands
