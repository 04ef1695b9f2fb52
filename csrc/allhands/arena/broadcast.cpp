#include "allhands/arena/collectives.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

void broadcast(Arena& arena, const Ways& ways, const Buffer& buffer, int root) {
  if (single_copy::broadcast(arena, ways, buffer, root)) return;
  const bool is_root = arena.rank() == root;
  const Cut cut = {buffer.count, arena.chunk_bytes() / size_of(buffer.dtype)};
  run_rounds(
      arena, cut.rounds(),
      [&](std::size_t i) {
        if (is_root)
          pack(buffer, cut.begin(i), cut.length(i),
               arena.staging(root, i, buffer.num_bytes()));
      },
      [&](std::size_t i) {
        if (!is_root)
          unpack(arena.staging(root, i, buffer.num_bytes()), buffer, cut.begin(i),
                 cut.length(i), ways.stores);
      });
}

}  // namespace allhands
