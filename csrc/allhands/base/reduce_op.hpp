// How values of several ranks become one. The numbers are torch.distributed's.
#pragma once

#include <cstdint>

namespace allhands {

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

// torch's name: "SUM", "BAND", ...
const char* name_of(ReduceOp op);

}  // namespace allhands
