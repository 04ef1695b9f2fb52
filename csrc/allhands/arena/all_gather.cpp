#include "allhands/arena/collectives.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

void all_gather(Arena& arena, const Ways& ways, const std::vector<Buffer>& outputs,
                const Buffer& input) {
  if (single_copy::all_gather(arena, ways, outputs, input)) return;
  const std::size_t most = largest_count(outputs);
  const std::size_t per_round = arena.chunk_bytes() / size_of(input.dtype);
  const std::size_t bytes = most * size_of(input.dtype);
  run_rounds(
      arena, Cut{most, per_round}.rounds(),
      [&](std::size_t i) {
        const Cut cut = {input.count, per_round};
        pack(input, cut.begin(i), cut.length(i), arena.staging(arena.rank(), i, bytes));
      },
      [&](std::size_t i) {
        for (int step = 0; step < arena.size(); ++step) {
          const int rank = (arena.rank() + step) % arena.size();  // spread the readers
          const Buffer& output = outputs[static_cast<std::size_t>(rank)];
          const Cut cut = {output.count, per_round};
          if (rank == arena.rank())
            copy(input, output, cut.begin(i), cut.length(i), ways.stores);
          else
            unpack(arena.staging(rank, i, bytes), output, cut.begin(i), cut.length(i),
                   ways.stores);
        }
      });
}

}  // namespace allhands
