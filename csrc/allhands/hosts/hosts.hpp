// Which ranks of a group are on which host, and which of them communicate with each
// other.
//
// Hosts are numbered by their lowest rank, which is the host's *leader*; the ranks of a
// host have local ranks in rising order. Any placement works: blocks, round robin,
// uneven. It is the same on every rank, except for what concerns this rank.
#pragma once

#include <cstddef>
#include <vector>

#include "allhands/host/membership.hpp"

namespace allhands {

// The position of a rank in a list of all ranks.
inline std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

class Hosts {
 public:
  explicit Hosts(const Membership& membership);

  int size() const { return static_cast<int>(host_of_.size()); }
  int num_hosts() const { return static_cast<int>(ranks_.size()); }
  int rank() const { return rank_; }
  int host() const { return host_of(rank_); }

  int host_of(int rank) const { return host_of_[index(rank)]; }
  // The ranks of a host, in rising order.
  const std::vector<int>& ranks(int host) const { return ranks_[index(host)]; }
  const std::vector<int>& local_ranks() const { return ranks(host()); }
  int local_rank_of(int rank) const { return local_rank_of_[index(rank)]; }
  bool is_local(int rank) const { return host_of(rank) == host(); }

  int leader(int host) const { return ranks(host).front(); }
  bool is_leader() const { return leader(host()) == rank_; }

  // The number of slices into which the ranks of a host cut what goes to other hosts:
  // the smallest number of ranks on a host. So each slice has one rank on every host.
  int num_slices() const { return num_slices_; }
  // The rank of `host` that handles what rank `local` of another host sends.
  int counterpart(int host, int local) const {
    const std::vector<int>& theirs = ranks(host);
    return theirs[static_cast<std::size_t>(local) % theirs.size()];
  }

 private:
  int rank_;
  std::vector<int> host_of_;
  std::vector<int> local_rank_of_;
  std::vector<std::vector<int>> ranks_;
  int num_slices_ = 0;
};

}  // namespace allhands
