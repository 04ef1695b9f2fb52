// What a rank says it is entering. Ranks compare these on every operation, so a program
// whose ranks call different things is told so instead of computing nonsense.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/dtype.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

enum class Op : std::uint8_t;  // see collectives.hpp

// The name of the call; "nothing" if the number is not that of a collective.
const char* name_of(Op op);

struct Descriptor {
  Op op = {};
  DType dtype = DType::UInt8;
  ReduceOp reduce_op = ReduceOp::Sum;
  ReduceOrder reduce_order = ReduceOrder::Any;
  std::int32_t root = -1;    // rank in the group; -1 where the operation has none
  std::uint64_t count = 0;   // elements that ranks must agree on; see collectives.hpp
  std::uint64_t shares = 0;  // digest of the counts per rank where they differ, else 0;
                             // of a list of arrays see list_of; of a sparse array
                             // the elements in a row

  bool operator==(const Descriptor&) const = default;

  // The value of `shares` for a list of `length` arrays with that digest.
  static std::uint64_t list_of(std::size_t length, std::uint64_t digest) {
    return kIsList | (length & kMaxLength) << 40 | (digest & kDigest);
  }
  bool is_list() const { return (shares & kIsList) != 0; }
  // The length of a list; for more than 8,388,607 arrays, the remainder.
  std::uint64_t length() const { return shares >> 40 & kMaxLength; }

 private:
  static constexpr std::uint64_t kIsList = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kDigest = (std::uint64_t{1} << 40) - 1;
  static constexpr std::uint64_t kMaxLength = (std::uint64_t{1} << 23) - 1;
};
static_assert(sizeof(Descriptor) == 24, "fits beside the clock in a cache line");

// For Descriptor::shares: 0 if all counts are equal.
std::uint64_t digest_of_counts(const std::vector<Buffer>& list);

// "all_reduce(float32, count 10, SUM)"
std::string describe(const Descriptor& descriptor);

}  // namespace allhands
