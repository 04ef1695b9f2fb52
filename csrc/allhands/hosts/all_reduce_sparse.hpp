// all_reduce of sparse arrays between hosts: the ranks tell each other which rows they
// have, each lays its own out among those of all, and these are reduced like any array.
#pragma once

#include "allhands/arena/operation.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

void all_reduce_sparse(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
