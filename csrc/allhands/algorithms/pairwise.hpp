// Each participant exchanges with each other one: in exchange i it sends to the
// participant i after it and receives from the one i before it. A round has `at_once`
// exchanges.
//
// Data goes directly to its destination. Each participant needs a connection to each
// other one.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input: the parts for each participant, cut by `to_send`; Output: the parts from each,
// cut by `to_receive`. What one participant sends to another must be what that one
// expects.
Schedule pairwise_all_to_all(int rank, const Partition& to_send,
                             const Partition& to_receive, int at_once);

// Input: all parts; Output: the participant's own part. Moves as little data as the
// ring.
//
// Order: the rank order, rounded as one reduction: the bits that one host would
// compute.
Schedule pairwise_reduce_scatter(int rank, const Partition& parts, int at_once);

}  // namespace allhands
