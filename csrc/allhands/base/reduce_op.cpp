#include "allhands/base/reduce_op.hpp"

namespace allhands {

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[kNumReduceOps] = {
      "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  const auto number = static_cast<int>(op);  // may be another rank's, and invalid
  return number < kNumReduceOps ? kNames[number] : "an unknown operation";
}

}  // namespace allhands
