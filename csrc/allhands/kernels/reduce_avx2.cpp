#include "allhands/kernels/reduce_loops.hpp"

namespace allhands {

constinit const ReduceTable kAvx2Reduce = make_reduce_table("avx2");

}  // namespace allhands
