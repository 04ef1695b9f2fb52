#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands::python {

// The operation of a RedOpType that needs no factor; nothing for any other object.
std::optional<ReduceOp> plain_op(nanobind::handle given);

// The reduce operation that a caller passed: a RedOpType, or a ReduceOp that has one
// and perhaps a factor. Throws TypeError.
struct Reduction {
  Reduction(const char* operation, nanobind::handle given);

  ReduceOp op;
  Factor factor;
};

}  // namespace allhands::python
