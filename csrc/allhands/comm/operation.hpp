// One collective with its arguments, checked and ready to run, any number of times. A
// plain value: making one takes no memory but that of its lists.
#pragma once

#include <cstddef>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/ways.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

struct Operation {
  Op op = Op::Barrier;
  ReduceOp reduce_op = ReduceOp::Sum;
  int root = -1;
  Factor factor = {};
  // What `op` has; see the functions of arena/collectives.hpp.
  Buffer output = {}, input = {};
  std::vector<Buffer> outputs = {}, inputs = {};

  // What the ranks have to agree on.
  Descriptor descriptor() const;
  // The ways that it may go; the same on every rank that runs it as the arena's next.
  Ways ways(const Arena& arena) const;
  void run(Arena& arena, const Limits& limits) const;
};

}  // namespace allhands
