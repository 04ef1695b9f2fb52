// The root exchanges with each participant itself, with all at once. Data goes to its
// destination at once, so it takes as long as the root's own link needs: for large
// parts, and for small arrays where the way is long.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// The Inputs, one part each, become Output of the root, which has all parts.
Schedule direct_gather(int rank, int root, const Partition& parts);

// The parts of the root's Input become Output of each.
Schedule direct_scatter(int rank, int root, const Partition& parts);

// Input of the root becomes Output of all others.
Schedule direct_broadcast(int rank, int size, int root, std::size_t count);

// The root gathers all Inputs and reduces them itself.
//
// Order: the rank order, rounded as one reduction: the bits that one host would
// compute.
Schedule direct_reduce(int rank, int size, int root, std::size_t count);

}  // namespace allhands
