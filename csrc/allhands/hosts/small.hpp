// Small operations of a group on several hosts: every rank tells all others its inputs
// as they agree, and computes its outputs alone, in rank order. So the bits are those
// of ranks on one host.
#pragma once

#include <cstddef>

#include "allhands/arena/operation.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// Of all ranks together: more goes another way.
inline constexpr std::size_t kSmallBytes = std::size_t{64} << 10;

// What all ranks together would tell; the same on every rank. SIZE_MAX of what has no
// such form or is not known before the ranks have met.
std::size_t told_bytes(const Operation& operation, int size);

// Carries out an operation for which that is known.
void run_small(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
