// Bruck's algorithms, in which the data of a participant multiplies in each round
// (Bruck et al., 1997), and their reverse, the circulant reduce-scatter (Traeff, 2024).
//
// With radix r, ceil(log_r size) rounds of r - 1 messages each, for every number of
// participants: the fewest rounds possible. With a radix of `size` or more there is one
// round, in which each participant sends to each. For small arrays. With radix 2,
// all_gather and reduce_scatter also move no more than the ring does, and win as long
// as distant participants cost no more than near ones.
//
// A participant numbers the parts from its own on: its position 0 is part `rank`,
// position i is part (rank + i) % size.
#pragma once

#include <cstddef>

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input: the participant's own part; Output: all parts.
Schedule bruck_all_gather(int rank, const Partition& parts, int radix);

// Input: all parts; Output: the participant's own part. Radix 2.
//
// Order: a tree over the positions, the same for every part. It is not the rank order,
// and differs between parts; but each part is reduced by one participant only.
Schedule circulant_reduce_scatter(int rank, const Partition& parts);

// Every participant gets all Inputs and reduces them itself.
//
// Order: the rank order, rounded as one reduction. So all get the same bits, those that
// one host would compute.
Schedule gather_all_reduce(int rank, int size, std::size_t count, int radix);

// Input: a part of `count` elements for each participant; Output: a part from each.
// Radix 2.
// Each element is sent up to log2 size times.
Schedule bruck_all_to_all(int rank, int size, std::size_t count);

}  // namespace allhands
