#include <algorithm>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/direct.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

void all_gather(Arena& arena, const std::vector<Buffer>& outputs, const Buffer& input,
                const Limits& limits) {
  std::vector<std::size_t> counts;
  for (const Buffer& output : outputs) counts.push_back(output.count);
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  arena.begin({.op = Op::AllGather,
               .dtype = input.dtype,
               .count = most,
               .shares = digest_of(counts)},
              limits);
  const std::size_t per_round = arena.chunk_bytes() / size_of(input.dtype);
  const std::size_t bytes = most * size_of(input.dtype);
  if (direct_all_gather(arena, outputs, input, bytes)) return;
  const Stores stores = arena.stores_for(bytes * outputs.size());
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
            copy(input, output, cut.begin(i), cut.length(i), stores);
          else
            unpack(arena.staging(rank, i, bytes), output, cut.begin(i), cut.length(i),
                   stores);
        }
      });
}

}  // namespace allhands
