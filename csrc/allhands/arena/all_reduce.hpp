// The all_reduce through the slots, of arrays in a row.
#pragma once

#include "allhands/arena/arena.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/arena/ways.hpp"
#include "allhands/base/reduce_op.hpp"

namespace allhands {

// Each array of `list` = op over all ranks' arrays in its place. They have one dtype.
// Except in one phase or a tree, no two may share memory: early chunks are written
// before late ones are read.
void all_reduce_row(Arena& arena, const Ways& ways, Buffers list, ReduceOp op);

}  // namespace allhands
