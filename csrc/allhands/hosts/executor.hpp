// Runs a schedule: sends and receives by the engine, the rest here.
#pragma once

#include <vector>

#include "allhands/algorithms/schedule.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/reduce_op.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// Runs this rank's schedule. Participant i is rank `participants[i]`; all participants
// run theirs as the same part of the same operation. `input` and `output` are of one
// dtype, and contiguous where the schedule reduces or copies. Of a round, a participant
// of which something is received and reduced is received from once. Throws as Messages.
void execute(const Crossing& crossing, const Schedule& schedule,
             const std::vector<int>& participants, const Buffer& input,
             const Buffer& output, ReduceOp op);

}  // namespace allhands
