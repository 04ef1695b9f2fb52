// Pipelined chains: each participant passes an array on to the next one, in chunks of
// at most `chunk` elements; all participants do so at the same time.
//
// It takes `size` - 1 steps until the first chunk is at the end, and one more for each
// further chunk. Each link carries the array at most once in each direction. For large
// arrays and few participants.
//
// Order: the rank order, from participant 0 on. Each addition is rounded.
#pragma once

#include <cstddef>

#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input of the root becomes Output of all others, from the participant after the root
// to the one before it.
Schedule chain_broadcast(int rank, int size, int root, std::size_t count,
                         std::size_t chunk);

// The Inputs are reduced into Output of the root. The last participant passes the
// result on to the root.
Schedule chain_reduce(int rank, int size, int root, std::size_t count,
                      std::size_t chunk);

// The same for every participant: sums go forward while results come back.
Schedule chain_all_reduce(int rank, int size, std::size_t count, std::size_t chunk);

}  // namespace allhands
