// Every rank stages its contribution to every other rank's result; each reduces its own
// straight into its output.
#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/parts.hpp"
#include "allhands/arena/reduction.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

namespace {

void check(const Operation& operation, int rank, int size) {
  const Buffer& output = operation.output;
  check_reduction(operation, output.dtype);
  check_list(operation, "input", operation.inputs, size, output.dtype);
  check_count(operation, "the output", output,
              operation.inputs[static_cast<std::size_t>(rank)].count);
}

Descriptor descriptor(const Operation& operation) {
  return {.op = Op::ReduceScatter,
          .dtype = operation.output.dtype,
          .reduce_op = operation.reduce_op,
          .reduce_order = operation.reduce_order,
          .count = largest_count(operation.inputs),
          .shares = digest_of_counts(operation.inputs)};
}

void reduce_scatter(Arena& arena, const Ways& ways, const Operation& operation) {
  const Buffer& output = operation.output;
  const std::vector<Buffer>& inputs = operation.inputs;
  const ReduceOp op = operation.reduce_op;
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

}  // namespace

const Collective kReduceScatter = {
    .op = Op::ReduceScatter,
    .name = "reduce_scatter",
    .is_reduction = true,
    .check = check,
    .descriptor = descriptor,
    .bytes = [](const Operation& operation) { return num_bytes(operation.inputs); },
    .run = reduce_scatter,
};

}  // namespace allhands
