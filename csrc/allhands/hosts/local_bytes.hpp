// Bytes in any number between the ranks of a host, which do not know how many before:
// as an operation of their arena, after Arena::begin.
#pragma once

#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/hosts/bytes.hpp"

namespace allhands {

// What each local rank has, on local rank `root`; nothing elsewhere. Throws Mismatch.
std::vector<Bytes> gather_bytes(Arena& arena, BytesView mine, int root);

// What local rank `root` has, on all of them. Throws Mismatch.
Bytes broadcast_bytes(Arena& arena, BytesView of_root, int root);

}  // namespace allhands
