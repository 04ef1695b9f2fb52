#pragma once

#include <nanobind/nanobind.h>

#include "allhands/base/reduce_op.hpp"

namespace allhands::python {

// What a caller passed as reduce operation: a RedOpType, or a ReduceOp that has one and
// perhaps a factor. Throws TypeError.
struct Reduction {
  Reduction(const char* operation, nanobind::handle given);

  ReduceOp op;
  double factor = 1;
};

}  // namespace allhands::python
