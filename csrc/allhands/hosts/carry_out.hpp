// Which algorithm an operation of a group on several hosts uses.
#pragma once

#include "allhands/arena/operation.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// Runs a checked operation, or one that a part of the crossing's operation consists of.
// Throws as AcrossHosts::run; any error but Mismatch leaves the ranks at different
// points.
void carry_out(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
