// An Operation carried out: the ways that it may go, and its run.
#pragma once

#include <cstdint>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/operation.hpp"
#include "allhands/arena/ways.hpp"

namespace allhands {

// The allowed ways; the same on every rank that runs it as the arena's next operation.
Ways ways_of(const Operation& operation, const Arena& arena);

// Runs a checked operation as the group's operation number `sequence`. With
// `may_suspend`, an interrupt before all ranks have come throws Suspended; an operation
// that cannot change threads throws it at once. The next run goes on with the
// operation.
void run(Arena& arena, std::uint64_t sequence, const Operation& operation,
         const Limits& limits, bool may_suspend = false);

}  // namespace allhands
