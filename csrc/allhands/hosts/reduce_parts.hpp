// A reduction of arrays on several hosts, as one host does it.
#pragma once

#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// Every rank sends each other rank its part: `parts`, by rank, are what this rank has
// for them. `output` = op over what all ranks have for this rank, as one reduction in
// rank order; it may be this rank's own part. `factors` are all ranks'. Throws as
// Messages::wait.
void reduce_parts(const Crossing& crossing, const std::vector<Buffer>& parts,
                  const Buffer& output, ReduceOp op,
                  const std::vector<Factor>& factors);

}  // namespace allhands
