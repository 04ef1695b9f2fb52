// The root exchanges with each participant directly, with all at the same time. Data
// goes directly to its destination, so it takes as long as the root's own link needs.
// For large parts, and for small arrays on networks with a high latency.
#pragma once

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// The Inputs, one part each, are gathered in Output of the root, which has all parts.
Schedule direct_gather(int rank, int root, const Partition& parts);

// Each participant's part of the root's Input becomes its Output.
Schedule direct_scatter(int rank, int root, const Partition& parts);

// Input of the root becomes Output of all others.
Schedule direct_broadcast(int rank, int size, int root, std::size_t count);

// The root gathers all Inputs and reduces them itself.
//
// Order: the rank order, rounded as one reduction: the bits that one host would
// compute.
Schedule direct_reduce(int rank, int size, int root, std::size_t count);

}  // namespace allhands
