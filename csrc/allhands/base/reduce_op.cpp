#include "allhands/base/reduce_op.hpp"

namespace allhands {

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[kNumReduceOps] = {
      "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return kNames[static_cast<int>(op)];
}

}  // namespace allhands
