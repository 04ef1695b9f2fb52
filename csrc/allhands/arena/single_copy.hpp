// The collectives with a single copy: straight from the array of one rank to that of
// another, without staging (see PeerArrays). An operation tries them first, after
// Arena::begin; if one returns false, the operation has to go through the slots.
//
// Each begins with the ranks' meeting, and ends when no rank reads or writes another's
// array any more, so that its owner may use it at once. Cost is given per rank for n
// ranks and B bytes of input.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/ways.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands::single_copy {

// Each rank reduces its part of the arrays from all inputs straight into all outputs.
// B bytes read and B written, however many ranks there are.
bool all_reduce(Arena& arena, const Ways& ways, const Buffer& output,
                const Buffer& input, ReduceOp op);

// The same straight into the root's array. B bytes read, B / n written.
bool reduce(Arena& arena, const Ways& ways, const Buffer& buffer, int root,
            ReduceOp op);

// Each rank copies the root's array. B bytes are read and written; half as much if two
// ranks copy together (see CooperativeReceives).
bool broadcast(Arena& arena, const Ways& ways, const Buffer& buffer, int root);

// Each rank copies all inputs. n B bytes read and written.
bool all_gather(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
                const Buffer& input);

// The root copies all inputs. If the arrays are not shared, the others copy too (see
// CooperativeReceives).
bool gather(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
            const Buffer& input, int root);

// Each rank reduces its part of all inputs into its output. B bytes read, B / n
// written.
bool reduce_scatter(Arena& arena, const Ways& ways, const Buffer& output,
                    const std::vector<Buffer>& inputs, ReduceOp op);

// Whether an all_to_all is in place, and so writes to what a peer would read.
bool writes_inputs(const std::vector<Buffer>& outputs,
                   const std::vector<Buffer>& inputs, std::size_t self);

// Each rank copies its part of all inputs, which lie in shared arrays. 2 B read and
// written. Counts are not agreed on before: `check` is called once all ranks have
// entered, and may throw.
bool all_to_all(Arena& arena, const std::vector<Buffer>& outputs,
                const std::vector<Buffer>& inputs, const std::function<void()>& check);

// Each rank copies its part of the root's inputs. B bytes read and written.
bool scatter(Arena& arena, const Ways& ways, const Buffer& output,
             const std::vector<Buffer>& inputs, int root);

}  // namespace allhands::single_copy
