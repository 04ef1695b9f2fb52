// One collective with its arguments, ready to run, any number of times. It is a plain
// value: making one allocates no memory except for its lists.
#pragma once

#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

struct Collective;
struct SparseArray;

struct Operation {
  const Collective* collective = nullptr;
  ReduceOp reduce_op = ReduceOp::Sum;
  ReduceOrder reduce_order = ReduceOrder::Any;
  int root = -1;
  Factor factor = {};
  // Which of these are set depends on the collective; see its row.
  Buffer output = {}, input = {};
  std::vector<Buffer> outputs = {}, inputs = {};
  SparseArray* sparse = nullptr;  // the caller's
};

}  // namespace allhands
