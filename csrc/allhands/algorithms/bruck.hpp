// Bruck's algorithms: what a participant has multiplies in each round (Bruck et al.,
// 1997), and their reverse, the circulant reduce-scatter (Traeff, 2024).
//
// With radix r, ceil(log_r size) rounds of r - 1 messages each, for every number of
// participants: the fewest rounds there may be. With a radix of `size` or more there is
// one round, in which each sends to each. For small arrays; where radix is 2,
// all_gather and reduce_scatter also move no more than the ring does, and win as long
// as what is far away is no dearer than what is near.
//
// A participant numbers the parts from its own one on: its position 0 is part `rank`,
// position i is part (rank + i) % size.
#pragma once

#include <cstddef>

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input: the own part; Output: all.
Schedule bruck_all_gather(int rank, const Partition& parts, int radix);

// Input: all parts; Output: the own one. Radix 2.
//
// Order: a tree over the positions, the same for every part. Not the rank order, and
// another one for each part; but each part is reduced by one participant only.
Schedule circulant_reduce_scatter(int rank, const Partition& parts);

// Every participant gets all Inputs and reduces them itself.
//
// Order: the rank order, rounded as one reduction. So all get the same bits, those that
// one host would compute.
Schedule gather_all_reduce(int rank, int size, std::size_t count, int radix);

// Input: a part of `count` elements for each participant; Output: one of each. Radix 2.
// Each element is sent up to log2 size times.
Schedule bruck_all_to_all(int rank, int size, std::size_t count);

}  // namespace allhands
