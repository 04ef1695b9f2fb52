// Which way the data of an operation goes: one table, whose inputs all ranks know
// alike. The sizes in it are those of the tuning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/ways.hpp"
#include "allhands/host/tuning.hpp"

namespace allhands {

// An operation, as far as the choice depends on it.
struct Case {
  static constexpr std::size_t kUnknown = kUnknownBytes;

  Op op;
  // The size of the array that a rank passes: the input, or the output of a scatter.
  // For an all_to_all, what a rank sends to all ranks together, in even shares;
  // kUnknown before the ranks have met.
  std::size_t bytes;
  int ranks;
  bool can_read_peers;
  bool has_shared_arrays;  // the group has made one

  std::size_t all() const { return bytes * static_cast<std::size_t>(ranks); }
};

// A row of the table. The rows of an operation are in order of preference.
struct WayChoice {
  Op op;
  Way way;
  bool (*is_worth)(const Case& c, const Tuning& tuning);
  const char* reason;
};

std::span<const WayChoice> choices();

// The ways of all rows of the operation that are worth it, up to the first way that
// every array allows.
Ways select(const Case& c, const Tuning& tuning);

// How a rank writes outputs of `bytes` in total.
Stores stores_for(std::size_t bytes, const Tuning& tuning);

}  // namespace allhands
