// A reduction as one host does it, of what ranks on several hosts have.
#pragma once

#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/base/reduce_op.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// Every rank gives each other one its part: `parts`, by rank, are what this one has for
// them. `output` = op over what all have for this one, in one reduction in rank order.
// It may be what this rank has for itself. `factors`: all ranks'. Takes memory for as
// many arrays of the output's size as there are ranks. Throws as Messages::wait.
void reduce_parts(const Crossing& crossing, const std::vector<Buffer>& parts,
                  const Buffer& output, ReduceOp op,
                  const std::vector<Factor>& factors);

}  // namespace allhands
