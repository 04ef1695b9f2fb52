#pragma once

#include <nanobind/nanobind.h>

#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands::python {

// The reduce operation that a caller passed: a RedOpType, or a ReduceOp that has one
// and perhaps a factor. Throws TypeError.
struct Reduction {
  Reduction(const char* operation, nanobind::handle given);

  ReduceOp op;
  Factor factor;
};

}  // namespace allhands::python
