// An Operation carried out: the ways that it may go, and its run.
#pragma once

#include <cstdint>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/operation.hpp"
#include "allhands/arena/ways.hpp"

namespace allhands {

// The same on every rank that runs it as the arena's next operation.
Ways ways_of(const Operation& operation, const Arena& arena);

// Runs a checked operation as the group's operation number `sequence`. `may_suspend`:
// an interrupt before all ranks have come throws Suspended, and so does an operation
// that cannot change threads, at once; the next run goes on with it.
void run(Arena& arena, std::uint64_t sequence, const Operation& operation,
         const Limits& limits, bool may_suspend = false);

}  // namespace allhands
