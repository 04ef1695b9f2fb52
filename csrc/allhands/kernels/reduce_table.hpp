// The reduction kernels of one instruction set, and which sets this CPU can run.
//
// One source (reduce_loops.hpp) is compiled once per instruction set, each time into
// its own translation unit: reduce_portable.cpp, reduce_avx2.cpp, reduce_avx512.cpp.
// Tests check that all give the same bits.
#pragma once

#include <cstddef>

#include "allhands/base/dtype.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

// As reduce() without its checks; num_sources >= 1.
using ReduceKernel = void (*)(void* dst, const void* const* sources, int num_sources,
                              std::size_t count, const Factor* factors);

struct ReduceTable {
  const char* name;
  ReduceKernel kernels[kNumDTypes][kNumReduceOps];  // null: the pair has no meaning

  ReduceKernel find(DType dtype, ReduceOp op) const {
    return kernels[static_cast<int>(dtype)][static_cast<int>(op)];
  }
};

// SSE2 on x86-64, NEON on ARM64. The others exist on x86-64 only.
extern const ReduceTable kPortableReduce;
extern const ReduceTable kAvx2Reduce;
extern const ReduceTable kAvx512Reduce;

// The tables that this CPU can run, the fastest first, followed by null.
const ReduceTable* const* runnable_reduce_tables();

}  // namespace allhands
