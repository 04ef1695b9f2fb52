#include "allhands/kernels/reduce.hpp"

#include <string>

#include "allhands/base/error.hpp"
#include "allhands/kernels/float_environment.hpp"
#include "allhands/kernels/reduce_table.hpp"

namespace allhands {
namespace {

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::BitAnd || op == ReduceOp::BitOr || op == ReduceOp::BitXor;
}

bool is_order(ReduceOp op) { return op == ReduceOp::Min || op == ReduceOp::Max; }

}  // namespace

void check_supported(const char* operation, DType dtype, ReduceOp op) {
  if (is_byte_float(dtype))
    throw Error(ErrorKind::Type, std::string(operation) + ": " + name_of(dtype) +
                                     " can be moved but not reduced, because each "
                                     "step would round to a few bits; convert to "
                                     "float32 or bfloat16 first");
  if (is_complex(dtype) && is_order(op))
    throw Error(ErrorKind::Value, std::string(operation) +
                                      " does not support RedOpType." + name_of(op) +
                                      " on complex tensors, got " + name_of(dtype) +
                                      "; complex numbers have no order");
  if (!is_integral(dtype) && is_bitwise(op))
    throw Error(ErrorKind::Unsupported, std::string("Cannot use ReduceOp.") +
                                            name_of(op) + " with non-integral dtype: " +
                                            operation + " got " + name_of(dtype));
  if (dtype == DType::Bool && (op == ReduceOp::Avg || op == ReduceOp::PremulSum))
    throw Error(ErrorKind::Type, std::string("Cannot use ReduceOp.") + name_of(op) +
                                     " with dtype bool, whose values cannot hold the "
                                     "result; convert to a number type first");
}

void check_factor(DType dtype, const Factor& factor) {
  if (!is_integral(dtype) || factor.is_integer) return;
  throw Error(ErrorKind::Value,
              std::string("the factor of ReduceOp.PREMUL_SUM must be an integer in "
                          "[-2**63, 2**64) for dtype ") +
                  name_of(dtype) + ", got " + std::to_string(factor.real));
}

void reduce(DType dtype, ReduceOp op, void* dst, const void* const* sources,
            int num_sources, std::size_t count, const Factor* factors) {
  const ReduceKernel kernel = runnable_reduce_tables()[0]->find(dtype, op);
  if (kernel == nullptr) check_supported("a reduction", dtype, op);
  if (op == ReduceOp::PremulSum)
    for (int k = 0; k < num_sources; ++k) check_factor(dtype, factors[k]);
  const DefaultFloatEnvironment environment;
  kernel(dst, sources, num_sources, count, factors);
}

}  // namespace allhands
