// Collectives of two parts, each of which may go any way: the participants first bring
// the array into parts, one each, and then the parts together.
//
// Each takes the schedules of one participant for its two parts, and gives that of the
// whole. `parts` are those that both were made for. The order of a reduction is that of
// the first part; whoever gets an element gets a copy of the one that was reduced.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

Schedule all_reduce_of(int rank, const Partition& parts, const Schedule& reduce_scatter,
                       const Schedule& all_gather);

Schedule reduce_of(int rank, int root, const Partition& parts,
                   const Schedule& reduce_scatter, const Schedule& gather);

// Input of the root becomes Output of all others. The root, which has all, is sent
// nothing.
Schedule broadcast_of(int rank, int root, const Partition& parts,
                      const Schedule& scatter, const Schedule& all_gather);

}  // namespace allhands
