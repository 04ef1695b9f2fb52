// Every rank stages its contribution to every other rank's result; each reduces its own
// straight into its output.
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/parts.hpp"
#include "allhands/arena/reduction.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

void reduce_scatter(Arena& arena, const Ways& ways, const Buffer& output,
                    const std::vector<Buffer>& inputs, ReduceOp op,
                    const Factor& factor) {
  arena.set_factor(factor);
  if (single_copy::reduce_scatter(arena, ways, output, inputs, op)) return;
  const std::size_t most = largest_count(inputs);
  const Parts parts(arena, output.dtype, most);
  Reduction reduction(arena, output.dtype, op);
  const Buffer& own = inputs[static_cast<std::size_t>(arena.rank())];
  const bool is_direct = own.is_contiguous();
  run_rounds(
      arena, Cut{most, parts.most()}.rounds(),
      [&](std::size_t i) {
        for (int rank = 0; rank < arena.size(); ++rank) {
          if (rank == arena.rank() && is_direct) continue;
          const Buffer& input = inputs[static_cast<std::size_t>(rank)];
          const Cut cut = {input.count, parts.most()};
          pack(input, cut.begin(i), cut.length(i), parts.at(arena.rank(), i, rank));
        }
      },
      [&](std::size_t i) {
        const Cut cut = {output.count, parts.most()};
        for (int rank = 0; rank < arena.size(); ++rank)
          reduction.source(rank) = parts.at(rank, i, arena.rank());
        if (is_direct)
          reduction.source(arena.rank()) = own.slice(cut.begin(i), cut.length(i)).data;
        reduction.run(output, cut.begin(i), cut.length(i));
      });
}

}  // namespace allhands
