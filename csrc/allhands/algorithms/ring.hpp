// The ring: each participant sends only to the next one (Patarasuk & Yuan, 2009).
//
// In size - 1 rounds each participant sends and receives (size - 1) / size of the
// array, the least possible. So the ring wins with large arrays, and loses with small
// ones. It needs two connections per participant, whatever the size.
//
// Order: part i is reduced from participant i + 1 on, around to i. It is not the rank
// order, and differs between parts; but each part is reduced by one participant only.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input: all parts; Output: the participant's own part.
Schedule ring_reduce_scatter(int rank, const Partition& parts);

// Input: the participant's own part; Output: all parts.
Schedule ring_all_gather(int rank, const Partition& parts);

}  // namespace allhands
