// Small operations of a group on several hosts: as the ranks agree, each tells all
// others what they need of its inputs, and then computes its outputs alone, in rank
// order. So the bits are those of ranks on one host.
#pragma once

#include <cstddef>

#include "allhands/arena/operation.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// The most bytes of all ranks together; larger operations use another algorithm.
inline constexpr std::size_t kSmallBytes = std::size_t{64} << 10;
// The same where nothing is reduced. Each rank gets what all have, much of it in vain.
inline constexpr std::size_t kSmallCopiedBytes = kSmallBytes / 2;

// The number of bytes that all ranks together would tell; the same on every rank.
// SIZE_MAX if the operation has no such form, or the number is unknown before the ranks
// have met.
std::size_t told_bytes(const Operation& operation, int size);

// Whether each rank has a factor, which goes to all others.
bool has_factor(const Operation& operation);

// Carries out an operation for which the number is known.
void run_small(const Crossing& crossing, const Operation& operation);

}  // namespace allhands
