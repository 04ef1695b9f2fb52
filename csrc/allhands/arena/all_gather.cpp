// Chunk by chunk: every rank stages its own chunk and copies out everybody's.
#include <algorithm>

#include "allhands/arena/collectives.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

// Elements [at, at + length) of every rank's input, staged as `staged(rank)`.
template <class Staged>
void copy_out(const Arena& arena, const std::vector<Buffer>& outputs, std::size_t at,
              std::size_t length, Staged staged) {
  for (int i = 0; i < arena.size(); ++i) {
    const int rank =
        (arena.rank() + i) % arena.size();  // not all from one rank at once
    unpack(staged(rank), outputs[static_cast<std::size_t>(rank)], at, length);
  }
}

}  // namespace

void all_gather(Arena& arena, const std::vector<Buffer>& outputs, const Buffer& input,
                const Limits& limits) {
  arena.begin({.op = Op::AllGather, .dtype = input.dtype, .count = input.count},
              limits);
  const std::size_t bytes = input.num_bytes();
  if (bytes <= arena.slot_bytes()) {
    pack(input, 0, input.count, arena.payload(arena.rank(), bytes));
    arena.enter();
    copy_out(arena, outputs, 0, input.count,
             [&](int rank) { return arena.payload(rank, bytes); });
    return;
  }
  const std::size_t chunk = arena.slot_bytes() / size_of(input.dtype);
  std::uint64_t i = 0;
  for (std::size_t at = 0; at < input.count; at += chunk, ++i) {
    const std::size_t length = std::min(chunk, input.count - at);
    pack(input, at, length, arena.slot(arena.rank(), i));
    if (i == 0) {
      arena.enter();
      arena.use_chunks((input.count + chunk - 1) / chunk);
    } else {
      arena.wait_all(arena.publish());
    }
    copy_out(arena, outputs, at, length, [&](int rank) { return arena.slot(rank, i); });
  }
}

}  // namespace allhands
