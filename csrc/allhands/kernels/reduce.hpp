// Reductions of contiguous elements: many sources, one result.
//
// The same bits come out wherever an element stands, however memory is aligned and
// whichever instruction set runs (see reduce_table.hpp): no fused multiply-add, no
// order but source 0, 1, 2, ...; a NaN result is always the one positive quiet NaN.
// Nor does it matter how the calling thread rounds, or whether it flushes subnormals.
//
//   float16, bfloat16   accumulate in float32, rounded once, to nearest even
//   integers            SUM, PRODUCT, PREMUL_SUM wrap;
//                       AVG is exact and rounded toward zero
//   bool                any nonzero byte is true, results are 0 or 1;
//                       SUM, MAX, BOR: or; PRODUCT, MIN, BAND: and; BXOR: xor
//   AVG                 never overflows when its sources are finite
//   MIN, MAX            NaN wins, and -0 < +0
//   complex             by component, but for PRODUCT
//
// Thread-safe: no state.
#pragma once

#include <cstddef>

#include "allhands/base/dtype.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

// Throws for a pair that has no meaning, naming the `operation`: Error(Value) for an
// order of complex numbers, Error(Unsupported) for bitwise operations on floats,
// Error(Type) for AVG and PREMUL_SUM on bool, and for floats of 8 bits or less.
void check_supported(const char* operation, DType dtype, ReduceOp op);

// Throws Error(Value) if `factor` cannot multiply elements of `dtype` in PREMUL_SUM:
// for integers it must be an integer in [-2**63, 2**64).
void check_factor(DType dtype, const Factor& factor);

// dst[i] = op over k of sources[k][i], in the order of k. `dst` may be one of the
// sources but not overlap one otherwise; nothing needs to be aligned. `factors[k]`
// multiplies source k for PREMUL_SUM; other ops ignore it. Throws as the checks do.
void reduce(DType dtype, ReduceOp op, void* dst, const void* const* sources,
            int num_sources, std::size_t count, const Factor* factors);

}  // namespace allhands
