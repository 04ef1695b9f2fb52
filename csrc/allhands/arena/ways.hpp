// The ways by which the data of an operation may go between the ranks of one host.
// comm/select.hpp chooses which of them an operation may take; the collectives follow
// that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allhands/kernels/pack.hpp"

namespace allhands {

// How the data of an operation goes, best first. The first three go from array to
// array, in a single copy.
enum class Way : std::uint8_t {
  Mapped,       // all arrays lie in one shared array: plain loads and stores
  Cooperative,  // sender and receiver copy together, by system calls
  Read,         // who needs the data reads it, by system calls
  Tree,         // staged whole; one rank of many reduces, and passes the result on
  OnePhase,     // staged whole; who needs the result reduces everything
  Slots,        // staged chunk by chunk
};

const char* name_of(Way way);

// What one operation may do, the same on every rank but for `stores`. Whether the ways
// before Tree can be taken depends on everybody's arrays, which the ranks tell each
// other at their meeting: they take the first that all arrays allow.
class Ways {
 public:
  Ways& add(Way way) {
    mask_ = static_cast<std::uint8_t>(mask_ | bit(way));
    return *this;
  }
  bool may(Way way) const { return (mask_ & bit(way)) != 0; }
  bool may_copy() const { return may(Way::Read) || may(Way::Cooperative); }

  Stores stores = Stores::Cached;  // how this rank writes its outputs
  // For an all_to_all, in which only the senders know the sizes: shares of
  // `least_share` bytes up to less than `most_share` are read in place.
  std::size_t least_share = SIZE_MAX;
  std::size_t most_share = SIZE_MAX;

 private:
  static constexpr unsigned bit(Way way) { return 1u << static_cast<unsigned>(way); }

  std::uint8_t mask_ = 0;
};

}  // namespace allhands
