// All-reduce by exchanges with peers at distances 1, 2, 4, ... (Thakur, Rabenseifner &
// Gropp, 2005).
//
// If `size` is no power of two, neighbours are folded first: an odd participant sends
// its array to the even one before it, which acts for both, and gets the result from
// it.
//
// Order: a balanced tree over neighbours in rank order, the same for every element and
// in both algorithms; so both give all participants the same bits. Each addition is
// rounded.
#pragma once

#include <cstddef>

#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// Recursive doubling: log2 size exchanges of whole arrays. For small arrays.
Schedule doubling_all_reduce(int rank, int size, std::size_t count);

// Recursive halving, then doubling (Rabenseifner): 2 log2 size exchanges, which move 2
// * (size - 1) / size of the array in total, the least possible. A fold moves the array
// once more.
Schedule halving_all_reduce(int rank, int size, std::size_t count);

}  // namespace allhands
