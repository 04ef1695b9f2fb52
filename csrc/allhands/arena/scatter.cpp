// The root's slot holds one part per rank, each of chunk_bytes / n.
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/parts.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

void scatter(Arena& arena, const Ways& ways, const Buffer& output,
             const std::vector<Buffer>& inputs, int root) {
  if (single_copy::scatter(arena, ways, output, inputs, root)) return;
  const Parts parts(arena, output.dtype, output.count);
  const Cut cut = {output.count, parts.most()};
  run_rounds(
      arena, cut.rounds(),
      [&](std::size_t i) {
        if (arena.rank() != root) return;
        for (int rank = 0; rank < arena.size(); ++rank)
          if (rank != root)
            pack(inputs[static_cast<std::size_t>(rank)], cut.begin(i), cut.length(i),
                 parts.at(root, i, rank));
      },
      [&](std::size_t i) {
        if (arena.rank() == root)
          return copy(inputs[static_cast<std::size_t>(root)], output, cut.begin(i),
                      cut.length(i));
        unpack(parts.at(root, i, arena.rank()), output, cut.begin(i), cut.length(i));
      });
}

}  // namespace allhands
