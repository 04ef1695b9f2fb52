// The ring: each participant sends to the next one only (Patarasuk & Yuan, 2009).
//
// size - 1 rounds; each participant sends and receives (size - 1) / size of the array,
// the least possible. So it wins with large arrays, and loses with small ones. It needs
// two connections, whatever the size.
//
// Order: part i is reduced from participant i + 1 on, round to i. Not the rank order,
// and another one for each part; but each part is reduced by one participant only.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input: all parts; Output: the own one.
Schedule ring_reduce_scatter(int rank, const Partition& parts);

// Input: the own part; Output: all.
Schedule ring_all_gather(int rank, const Partition& parts);

}  // namespace allhands
