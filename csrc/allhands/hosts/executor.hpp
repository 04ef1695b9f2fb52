// Runs a schedule: the engine sends and receives, and this code does the rest.
#pragma once

#include <vector>

#include "allhands/algorithms/schedule.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/reduce_op.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// Runs this rank's schedule. Participant i is rank `participants[i]`; all participants
// run their schedules as the same part of the same operation. `input` and `output` have
// one dtype, and must be contiguous if the schedule reduces or copies. In a round that
// receives and reduces from a participant, it is received from only once. Throws as
// Messages.
void execute(const Crossing& crossing, const Schedule& schedule,
             const std::vector<int>& participants, const Buffer& input,
             const Buffer& output, ReduceOp op);

}  // namespace allhands
