// Binomial trees: a participant that has the data of a subtree passes half of it on, so
// that ceil(log2 size) rounds reach all. For small arrays.
//
// Participants are numbered from the root on: the root's place is 0, and another place
// is (rank - root) % size. The subtree of place p has as many places, from p on, as the
// value of the lowest bit of p.
#pragma once

#include <cstddef>

#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input of the root becomes Output of all others.
Schedule binomial_broadcast(int rank, int size, int root, std::size_t count);

// The Inputs are reduced into Output of the root.
//
// Order: a tree over the places, which is the rank order if the root is 0. Each
// addition is rounded.
Schedule binomial_reduce(int rank, int size, int root, std::size_t count);

// The Inputs, one part each, are gathered in Output of the root, which has all parts.
Schedule binomial_gather(int rank, int root, const Partition& parts);

// Each participant's part of the root's Input becomes its Output.
Schedule binomial_scatter(int rank, int root, const Partition& parts);

// The root gathers all Inputs and reduces them itself.
//
// Order: the rank order, rounded as one reduction: the bits that one host would
// compute.
Schedule gather_reduce(int rank, int size, int root, std::size_t count);

}  // namespace allhands
