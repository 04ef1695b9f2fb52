// all_reduce of sparse arrays between hosts. The ranks tell each other which rows they
// have. Each rank puts its rows into an array with the rows of all ranks, and these
// arrays are reduced like any others.
#pragma once

#include "allhands/arena/operation.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

void all_reduce_sparse(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
