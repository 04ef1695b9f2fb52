#include "allhands/kernels/reduce_loops.hpp"

namespace allhands {

constinit const ReduceTable kPortableReduce = make_reduce_table("portable");

}  // namespace allhands
