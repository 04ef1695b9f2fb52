// How values of several ranks become one.
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
  PremulSum = 8,  // each rank's values times that rank's factor, then the sum
};
inline constexpr int kNumReduceOps = 9;

// In which order: what a group on several hosts takes for large arrays. On one host it
// is that of the ranks always.
enum class ReduceOrder : std::uint8_t {
  Any,   // whichever is fast; the same bits on every rank
  Rank,  // that of the ranks, in one reduction: the bits of one host
};

// torch's name: "SUM", "BAND", ...
const char* name_of(ReduceOp op);

}  // namespace allhands
