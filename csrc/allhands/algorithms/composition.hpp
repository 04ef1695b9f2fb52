// Collectives made of other collectives, each of which may use any algorithm. Most have
// two halves: the participants first bring the array into parts, one for each, and then
// bring the parts together.
//
// Each function takes the schedules of one participant for the halves, and returns the
// schedule of the whole. `parts` must be those for which the halves were made. The
// order of a reduction is that of the first half; participants that need an element get
// a copy of the reduced one.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

Schedule all_reduce_of(int rank, const Partition& parts, const Schedule& reduce_scatter,
                       const Schedule& all_gather);

Schedule reduce_of(int rank, int root, const Partition& parts,
                   const Schedule& reduce_scatter, const Schedule& gather);

// The root reduces the gathered inputs, which are the parts, in rank order.
Schedule reduce_gathered(int rank, int root, const Partition& inputs,
                         const Schedule& gather);

// Input of the root becomes Output of all others. The root, which has all data, gets
// empty messages.
Schedule broadcast_of(int rank, int root, const Partition& parts,
                      const Schedule& scatter, const Schedule& all_gather);

}  // namespace allhands
