// Exchanges any number of bytes between the ranks of a host, which do not know the
// number beforehand. Runs as an operation of their arena, after Arena::begin.
#pragma once

#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/hosts/bytes.hpp"

namespace allhands {

// Returns what each other local rank has, on local rank `root`, with nothing in its own
// place; elsewhere returns nothing. Throws Mismatch.
std::vector<Bytes> gather_bytes(Arena& arena, BytesView mine, int root);

// Returns what local rank `root` has, on all other local ranks. Throws Mismatch.
Bytes broadcast_bytes(Arena& arena, BytesView of_root, int root);

}  // namespace allhands
