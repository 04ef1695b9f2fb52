#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

namespace {

void check(const Operation& operation, int rank, int size) {
  const std::vector<Buffer>& outputs = operation.outputs;
  check_list(operation, "output", outputs, size, operation.input.dtype);
  check_count(operation, "output (this rank's)",
              outputs[static_cast<std::size_t>(rank)], operation.input.count, rank);
  check_apart("all_gather: output", outputs);
}

Descriptor descriptor(const Operation& operation) {
  return {.op = Op::AllGather,
          .dtype = operation.input.dtype,
          .count = largest_count(operation.outputs),
          .shares = digest_of_counts(operation.outputs)};
}

// The bytes of the largest array, if they differ.
std::size_t largest_bytes(const Operation& operation) {
  return largest_count(operation.outputs) * size_of(operation.input.dtype);
}

void all_gather(Arena& arena, const Ways& ways, const Operation& operation) {
  const std::vector<Buffer>& outputs = operation.outputs;
  const Buffer& input = operation.input;
  if (single_copy::all_gather(arena, ways, outputs, input)) return;
  const std::size_t most = largest_count(outputs);
  const std::size_t per_round = arena.chunk_bytes() / size_of(input.dtype);
  const std::size_t bytes = largest_bytes(operation);
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

}  // namespace

const Collective kAllGather = {
    .op = Op::AllGather,
    .name = "all_gather",
    .is_reduction = false,
    .check = check,
    .descriptor = descriptor,
    .bytes = largest_bytes,
    .run = all_gather,
};

}  // namespace allhands
