// Who is in a group, as this rank sees it.
#pragma once

#include <string>
#include <vector>

#include "allhands/base/rank_text.hpp"
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
  // The same of each; of many "ranks 0-38, 41 (40 of 256)".
  std::string describe(const std::vector<int>& some) const {
    const auto number_of = [](int peer) { return peer; };
    return tell_of(
        some, size(), number_of, [this](int peer) { return describe(peer); },
        [](int, bool) { return std::string(); });
  }
};

}  // namespace allhands
