// The sizes from which on another algorithm is used, and how long a rank waits awake:
// all in one table, with the reason for each in tuning.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "allhands/host/process.hpp"

namespace allhands {

struct Tuning {
  std::uint64_t one_phase_bytes;
  std::uint64_t chunk_bytes;
  std::uint64_t direct_bytes;
  std::uint64_t read_bytes;
  std::uint64_t read_rooted_bytes;
  std::uint64_t read_broadcast_bytes;
  std::uint64_t read_reduce_bytes;
  std::uint64_t read_reduce_scatter_bytes;
  std::uint64_t read_most_bytes;
  std::uint64_t read_all_to_all_bytes;
  std::uint64_t read_most_all_to_all_bytes;
  std::uint64_t stream_bytes;
  std::uint64_t eager_bytes;
  std::uint64_t piece_bytes;
  std::uint64_t handover_bytes;
  std::uint64_t slice_bytes;
  std::uint64_t tree_ranks;
  std::uint64_t spins;
  std::uint64_t yields;
  std::uint64_t yields_per_look;

  // Whether so many ranks meet in a tree.
  bool are_many(int ranks) const {
    return static_cast<std::uint64_t>(ranks) >= tree_ranks;
  }
  // How long to look for a message of so many bytes. A larger one takes longer to come,
  // as first both ranks have copied as much.
  std::uint64_t spins_for(std::uint64_t bytes) const {
    return spins * std::min(bytes, eager_bytes) / 4096;
  }

  // For `size` ranks that share this many CPUs, on a host of which nothing else is
  // known; see calibration/fit.hpp.
  static Tuning for_ranks(int size, int cpus = num_cpus());

  struct Entry {
    const char* name;
    std::uint64_t Tuning::* value;
    std::uint64_t least;
    std::uint64_t most;
  };
  static std::span<const Entry> entries();
  // Whether set() would accept every number.
  bool is_valid() const;
  // Throws Value for an unknown name or an invalid number.
  void set(const std::string& name, std::uint64_t value);
};

}  // namespace allhands
