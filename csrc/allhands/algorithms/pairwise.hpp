// Each participant exchanges with each other one, one after the other in rounds: in
// round i it sends to the participant i after it and receives from the one i before it.
// A round has `at_once` such exchanges.
//
// Data goes to its destination at once. It needs a connection to each participant.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input: what goes to each participant, as `to_send` tells; Output: what came from
// each, as `to_receive` tells. What one sends another expects the other to receive.
Schedule pairwise_all_to_all(int rank, const Partition& to_send,
                             const Partition& to_receive, int at_once);

// Input: all parts; Output: the own one. Moves as little as the ring does.
//
// Order: the rank order, rounded as one reduction: the bits that one host would
// compute.
Schedule pairwise_reduce_scatter(int rank, const Partition& parts, int at_once);

}  // namespace allhands
