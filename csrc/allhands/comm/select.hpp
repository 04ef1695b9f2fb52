// Which way the data of an operation goes: one table, from what all ranks know of the
// operation alike. The sizes in it are those of the tuning.
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
  // Of the array that a rank passes: the input, and of a scatter the output. Of an
  // all_to_all what a rank sends to all together, in even shares: kUnknown before the
  // ranks have met.
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

// All rows of the operation that are worth it, up to the first that every array allows.
Ways select(const Case& c, const Tuning& tuning);

// How a rank writes outputs of so many bytes together.
Stores stores_for(std::size_t bytes, const Tuning& tuning);

}  // namespace allhands
