// The collectives, each straight through the arena. Every rank calls the same one with
// matching arguments; see Arena for what happens when it does not.
//
// Cost is given per rank for n ranks and B bytes; a "phase" is one publish and one wait
// for all.
#pragma once

#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

// output = op over all ranks' inputs, in rank order, with the same bits on every rank.
// `input` may be `output`. Up to some size in one phase, n * B bytes read; above it in
// chunks of two phases, about 5 B read and written, whatever n is.
void all_reduce(Arena& arena, const Buffer& output, const Buffer& input, ReduceOp op,
                double factor, const Limits& limits);

// buffer of every rank = buffer of rank `root`. 2 B read and written.
void broadcast(Arena& arena, const Buffer& buffer, int root, const Limits& limits);

// outputs[r] = input of rank r, on every rank. (n + 1) B read and written.
void all_gather(Arena& arena, const std::vector<Buffer>& outputs, const Buffer& input,
                const Limits& limits);

// Returns when every rank has called it.
void barrier(Arena& arena, const Limits& limits);

}  // namespace allhands
