// Reduces one source per rank, of all ranks or of the first ones, in rank order, with
// the ranks' factors where the op has them.
#pragma once

#include <cstddef>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

class Reduction {
 public:
  Reduction(const Arena& arena, DType dtype, ReduceOp op)
      : Reduction(arena, dtype, op, arena.size()) {}
  // Reduces the sources of the first `num_ranks` ranks, at least one.
  Reduction(const Arena& arena, DType dtype, ReduceOp op, int num_ranks);

  // The source of `rank`. Set it for all ranks before each run.
  const void*& source(int rank) { return sources_[static_cast<std::size_t>(rank)]; }

  // Reduces into contiguous memory, which may be one of the sources. Call after
  // Arena::enter.
  void run(void* result, std::size_t count);
  // Reduces into elements [at, at + count) of `output`.
  void run(const Buffer& output, std::size_t at, std::size_t count);

 private:
  const Arena& arena_;
  DType dtype_;
  ReduceOp op_;
  std::vector<const void*> sources_;
  std::vector<Factor> factors_;
  std::vector<std::byte> scratch_;  // results of a strided output
};

}  // namespace allhands
