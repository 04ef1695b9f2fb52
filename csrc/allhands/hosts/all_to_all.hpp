// all_to_all between hosts. The ranks agree on all counts by a digest of them. Small
// shares go along with that; others go directly from array to array.
#pragma once

#include "allhands/arena/operation.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

void all_to_all(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
