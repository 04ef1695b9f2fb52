// The root's slot holds one part per rank, each of chunk_bytes / n.
#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/parts.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

namespace {

void check(const Operation& operation, int rank, int size) {
  check_root(operation, size);
  check_list_of_root(operation, "input", operation.inputs, rank, size,
                     operation.output);
}

Descriptor descriptor(const Operation& operation) {
  return {.op = Op::Scatter,
          .dtype = operation.output.dtype,
          .root = operation.root,
          .count = operation.output.count};
}

void scatter(Arena& arena, const Ways& ways, const Operation& operation) {
  const Buffer& output = operation.output;
  const std::vector<Buffer>& inputs = operation.inputs;
  const int root = operation.root;
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

}  // namespace

const Collective kScatter = {
    .op = Op::Scatter,
    .name = "scatter",
    .is_reduction = false,
    .check = check,
    .descriptor = descriptor,
    .bytes = [](const Operation& operation) { return operation.output.num_bytes(); },
    .run = scatter,
};

}  // namespace allhands
