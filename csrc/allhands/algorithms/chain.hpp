// Pipelined chains: each participant passes an array on to the next one, chunk by chunk
// of at most `chunk` elements, all of them at the same time.
//
// `size` - 1 steps until the first chunk is at the end, and one more for each further
// chunk. In the end each link has carried the array once in each direction at most. For
// large arrays of few participants.
//
// Order: the rank order, from participant 0 on. Each addition is rounded.
#pragma once

#include <cstddef>

#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Input of the root becomes Output of all others, from the root on round to the one
// before it.
Schedule chain_broadcast(int rank, int size, int root, std::size_t count,
                         std::size_t chunk);

// The Inputs become Output of the root. The last participant passes the result on to
// it.
Schedule chain_reduce(int rank, int size, int root, std::size_t count,
                      std::size_t chunk);

// The same for every participant: sums go forward, and results come back meanwhile.
Schedule chain_all_reduce(int rank, int size, std::size_t count, std::size_t chunk);

}  // namespace allhands
