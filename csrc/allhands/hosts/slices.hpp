// An array cut into slices, of which each of the first ranks of every host has one, and
// the ranks that have the same slice.
#pragma once

#include <vector>

#include "allhands/algorithms/partition.hpp"
#include "allhands/arena/operation.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

class HostSlices {
 public:
  HostSlices(const Crossing& crossing, std::size_t count)
      : crossing_(crossing),
        slices_(Partition::even(count, crossing.hosts.num_slices())) {}

  // Whether this rank has a slice.
  bool has_own() const { return has(crossing_.arena.rank()); }
  bool has(int local) const { return local < slices_.size(); }
  // The slice of a local rank; empty if it has none.
  Buffer of(const Buffer& array, int local) const {
    return has(local) ? array.slice(slices_.at(local), slices_.count(local))
                      : array.slice(0, 0);
  }
  Buffer own(const Buffer& array) const { return of(array, crossing_.arena.rank()); }
  // The slices, by local rank.
  std::vector<Buffer> all(const Buffer& array) const {
    std::vector<Buffer> list;
    for (int local = 0; local < crossing_.arena.size(); ++local)
      list.push_back(of(array, local));
    return list;
  }
  // By host, the rank that has the same slice as this rank.
  std::vector<int> participants() const {
    std::vector<int> ranks;
    for (int host = 0; host < crossing_.hosts.num_hosts(); ++host)
      ranks.push_back(crossing_.hosts.counterpart(host, crossing_.arena.rank()));
    return ranks;
  }

 private:
  const Crossing& crossing_;
  const Partition slices_;
};

// Runs a part of the operation between the ranks of this host.
void run_within_host(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
