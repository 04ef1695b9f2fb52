// How the values of several ranks are reduced to one.
#pragma once

#include <cstdint>

namespace allhands {

// The numbers are torch.distributed's.
enum class ReduceOp : std::uint8_t {
  Sum = 0,
  Avg = 1,
  Product = 2,
  Min = 3,
  Max = 4,
  BitAnd = 5,
  BitOr = 6,
  BitXor = 7,
  // Each rank's values are multiplied by that rank's factor, then summed.
  PremulSum = 8,
};
inline constexpr int kNumReduceOps = 9;

// The order of a reduction of large arrays in a group on several hosts. On one host it
// is always the order of the ranks.
enum class ReduceOrder : std::uint8_t {
  Any,   // whichever order is fast; all ranks get the same bits
  Rank,  // the order of the ranks, as one reduction; the bits are those of one host
};

// torch's name: "SUM", "BAND", ...
const char* name_of(ReduceOp op);

}  // namespace allhands
