// The collectives, each straight through the arena, after Arena::begin with a
// descriptor of the arguments. Every rank calls the same one with matching arguments,
// and may go the same ways; see Arena for what happens when it does not.
//
// Cost is given per rank for n ranks and B bytes of input; a round is one publish and
// one wait for all. Where counts may differ between ranks, all must know all of them;
// ranks that disagree get a Mismatch.
#pragma once

#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/ways.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

// output = op over all ranks' inputs, in rank order, with the same bits on every rank.
// `input` may be `output`. In one phase n * B bytes read; in chunks of two rounds about
// 5 B read and written, whatever n is.
void all_reduce(Arena& arena, const Ways& ways, const Buffer& output,
                const Buffer& input, ReduceOp op, const Factor& factor);

// The same with the result on rank `root` only; the others' buffers are only read.
void reduce(Arena& arena, const Ways& ways, const Buffer& buffer, int root, ReduceOp op,
            const Factor& factor);

// output = op over all ranks' inputs[this rank]. Counts may differ between the inputs,
// not between ranks. About 3 B read and written.
void reduce_scatter(Arena& arena, const Ways& ways, const Buffer& output,
                    const std::vector<Buffer>& inputs, ReduceOp op,
                    const Factor& factor);

// buffer of every rank = buffer of rank `root`. 2 B read and written.
void broadcast(Arena& arena, const Ways& ways, const Buffer& buffer, int root);

// outputs[r] = input of rank r, on every rank; counts may differ between ranks.
// 2 (n + 1) B read and written.
void all_gather(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
                const Buffer& input);

// The same on rank `root` only; the others pass no outputs. Counts are all equal.
void gather(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
            const Buffer& input, int root);

// output = inputs[this rank] of rank `root`; the others pass no inputs. Counts are all
// equal.
void scatter(Arena& arena, const Ways& ways, const Buffer& output,
             const std::vector<Buffer>& inputs, int root);

// outputs[r] = inputs[this rank] of rank r. Any counts, if sender and receiver agree.
// 4 B read and written.
void all_to_all(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
                const std::vector<Buffer>& inputs);

// Returns when every rank has called it.
void barrier(Arena& arena);

}  // namespace allhands
