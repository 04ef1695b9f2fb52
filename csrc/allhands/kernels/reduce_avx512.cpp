#include "allhands/kernels/reduce_loops.hpp"

namespace allhands {

constinit const ReduceTable kAvx512Reduce = make_reduce_table("avx512");

}  // namespace allhands
