// Collectives made of others, each of which may go any way. Most have two halves: the
// participants first bring the array into parts, one each, and then the parts together.
//
// Each function takes the schedules of one participant for the halves, and gives that
// of the whole. `parts` are those that they were made for. The order of a reduction is
// that of the first half; whoever gets an element gets a copy of the one that was
// reduced.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

Schedule all_reduce_of(int rank, const Partition& parts, const Schedule& reduce_scatter,
                       const Schedule& all_gather);

Schedule reduce_of(int rank, int root, const Partition& parts,
                   const Schedule& reduce_scatter, const Schedule& gather);

// The root reduces what was gathered, whole inputs as parts, in rank order.
Schedule reduce_gathered(int rank, int root, const Partition& inputs,
                         const Schedule& gather);

// Input of the root becomes Output of all others. The root, which has all, is sent
// empty messages.
Schedule broadcast_of(int rank, int root, const Partition& parts,
                      const Schedule& scatter, const Schedule& all_gather);

}  // namespace allhands
