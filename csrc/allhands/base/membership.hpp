// Who is in a group, as this rank sees it.
#pragma once

#include <string>
#include <vector>

#include "allhands/base/process.hpp"

namespace allhands {

struct Membership {
  std::string name;                    // of the group, for messages
  int rank = 0;                        // this rank
  std::vector<ProcessIdentity> peers;  // by rank, this one included

  int size() const { return static_cast<int>(peers.size()); }
  // "rank 3 (pid 4711)"
  std::string describe(int peer) const {
    return "rank " + std::to_string(peer) + " (pid " +
           std::to_string(peers[static_cast<std::size_t>(peer)].pid) + ")";
  }
  // A rank that is a thread of this process lives as long as we do.
  bool is_peer_alive(int peer) const {
    const ProcessIdentity& process = peers[static_cast<std::size_t>(peer)];
    const ProcessIdentity& self = peers[static_cast<std::size_t>(rank)];
    return process.pid == self.pid || is_alive(process);
  }
};

}  // namespace allhands
