// Chunk by chunk through the root's slots: the root is at most one chunk ahead of the
// slowest rank, so it fills one slot while the others empty the other.
#include <algorithm>

#include "allhands/arena/collectives.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

void broadcast_small(Arena& arena, const Buffer& buffer, int root) {
  std::byte* staged = arena.payload(root, buffer.num_bytes());
  if (arena.rank() == root) pack(buffer, 0, buffer.count, staged);
  arena.enter();
  if (arena.rank() != root) unpack(staged, buffer, 0, buffer.count);
}

void broadcast_large(Arena& arena, const Buffer& buffer, int root) {
  const std::size_t chunk = arena.slot_bytes() / size_of(buffer.dtype);
  const bool is_root = arena.rank() == root;
  std::uint32_t previous = 0;  // this rank's clock at the chunk before
  std::uint64_t i = 0;
  for (std::size_t at = 0; at < buffer.count; at += chunk, ++i) {
    const std::size_t length = std::min(chunk, buffer.count - at);
    if (is_root) {
      if (i >= 2) arena.wait_all(previous);  // nobody reads chunk i - 2 any more
      pack(buffer, at, length, arena.slot(root, i));
    }
    if (i == 0) {
      arena.enter();
      arena.use_chunks((buffer.count + chunk - 1) / chunk);
    }
    const std::uint32_t now = i == 0 ? arena.clock() : arena.publish();
    if (!is_root) {
      arena.wait(root, now);
      unpack(arena.slot(root, i), buffer, at, length);
    }
    previous = now;
  }
  if (is_root)
    arena.wait_all(previous);  // nor chunk count - 2, the next operation's slot
}

}  // namespace

void broadcast(Arena& arena, const Buffer& buffer, int root, const Limits& limits) {
  arena.begin(
      {.op = Op::Broadcast, .dtype = buffer.dtype, .root = root, .count = buffer.count},
      limits);
  if (buffer.num_bytes() <= arena.slot_bytes())
    broadcast_small(arena, buffer, root);
  else
    broadcast_large(arena, buffer, root);
}

}  // namespace allhands
