// Who is in a group, as this rank sees it.
#pragma once

#include <string>
#include <vector>

#include "allhands/host/process.hpp"

namespace allhands {

struct Membership {
  std::string name;                    // of the group, for messages
  int rank = 0;                        // this rank
  std::vector<ProcessIdentity> peers;  // by rank, this one included

  int size() const { return static_cast<int>(peers.size()); }
  const ProcessIdentity& process(int peer) const {
    return peers[static_cast<std::size_t>(peer)];
  }
  // "rank 3 (pid 4711)"
  std::string describe(int peer) const {
    return "rank " + std::to_string(peer) + " (pid " +
           std::to_string(process(peer).pid) + ")";
  }
};

}  // namespace allhands
