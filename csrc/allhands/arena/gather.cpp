#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

namespace {

void check(const Operation& operation, int rank, int size) {
  check_root(operation, size);
  check_list_of_root(operation, "output", operation.outputs, rank, size,
                     operation.input);
  check_apart("gather: output", operation.outputs);
}

Descriptor descriptor(const Operation& operation) {
  return {.op = Op::Gather,
          .dtype = operation.input.dtype,
          .root = operation.root,
          .count = operation.input.count};
}

void gather(Arena& arena, const Ways& ways, const Operation& operation) {
  const std::vector<Buffer>& outputs = operation.outputs;
  const Buffer& input = operation.input;
  const int root = operation.root;
  if (single_copy::gather(arena, ways, outputs, input, root)) return;
  const Cut cut = {input.count, arena.chunk_bytes() / size_of(input.dtype)};
  const std::size_t bytes = input.num_bytes();
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
            copy(input, output, cut.begin(i), cut.length(i), ways.stores);
          else
            unpack(arena.staging(rank, i, bytes), output, cut.begin(i), cut.length(i),
                   ways.stores);
        }
      });
}

}  // namespace

const Collective kGather = {
    .op = Op::Gather,
    .name = "gather",
    .is_reduction = false,
    .check = check,
    .descriptor = descriptor,
    .bytes = [](const Operation& operation) { return operation.input.num_bytes(); },
    .run = gather,
};

}  // namespace allhands
