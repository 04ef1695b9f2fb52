// all_to_all between hosts: the ranks agree on all counts by a digest of them. Small
// shares ride along, others go straight from array to array.
#pragma once

#include "allhands/arena/operation.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

void all_to_all(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
