#include "allhands/arena/collectives.hpp"
#include "allhands/arena/direct.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

void gather(Arena& arena, const std::vector<Buffer>& outputs, const Buffer& input,
            int root, const Limits& limits) {
  arena.begin(
      {.op = Op::Gather, .dtype = input.dtype, .root = root, .count = input.count},
      limits);
  if (direct_gather(arena, outputs, input, root)) return;
  const Cut cut = {input.count, arena.chunk_bytes() / size_of(input.dtype)};
  const std::size_t bytes = input.num_bytes();
  const Stores stores = arena.stores_for(bytes * outputs.size());
  run_rounds(
      arena, cut.rounds(),
      [&](std::size_t i) {
        if (arena.rank() != root)
          pack(input, cut.begin(i), cut.length(i),
               arena.staging(arena.rank(), i, bytes));
      },
      [&](std::size_t i) {
        if (arena.rank() != root) return;
        for (int rank = 0; rank < arena.size(); ++rank) {
          const Buffer& output = outputs[static_cast<std::size_t>(rank)];
          if (rank == root)
            copy(input, output, cut.begin(i), cut.length(i), stores);
          else
            unpack(arena.staging(rank, i, bytes), output, cut.begin(i), cut.length(i),
                   stores);
        }
      });
}

}  // namespace allhands
