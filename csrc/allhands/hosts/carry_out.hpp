// Which way an operation of a group on several hosts goes.
#pragma once

#include "allhands/arena/operation.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// Runs a checked operation, or one that a part of the crossing's consists of. Throws as
// AcrossHosts::run; whatever is no Mismatch leaves the ranks at different points.
void carry_out(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
