// Prefix reductions: every rank stages all of its input chunk by chunk, and each rank
// reduces what the ranks up to it have staged.
#include <string>

#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/reduction.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/base/error.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

void check(const Operation& operation, int, int) {
  const Buffer &output = operation.output, &input = operation.input;
  check_reduction(operation, input.dtype);
  check_dtype(output, input.dtype);
  check_count(operation, "the output", output, input.count);
  // A chunk of the output must not overlap a later chunk of the input.
  if (overlap(output, input) && output != input)
    throw Error(ErrorKind::Value,
                std::string(operation.collective->name) +
                    ": output and input share memory but are not the same array; "
                    "pass one array as both, or two apart");
}

Descriptor descriptor(const Operation& operation) {
  return {.op = operation.collective->op,
          .dtype = operation.input.dtype,
          .reduce_op = operation.reduce_op,
          .reduce_order = operation.reduce_order,
          .count = operation.input.count};
}

std::size_t bytes(const Operation& operation) { return operation.input.num_bytes(); }

// Reduces the inputs of the first `num_ranks` ranks.
void reduce_prefix(Arena& arena, const Operation& operation, int num_ranks) {
  const Buffer &output = operation.output, &input = operation.input;
  const std::size_t bytes = input.num_bytes();
  const Cut cut = {input.count, arena.chunk_bytes() / size_of(input.dtype)};
  Reduction reduction(arena, input.dtype, operation.reduce_op, num_ranks);
  run_rounds(
      arena, cut.rounds(),
      [&](std::size_t i) {
        pack(input, cut.begin(i), cut.length(i), arena.staging(arena.rank(), i, bytes));
      },
      [&](std::size_t i) {
        if (num_ranks == 0) return;
        for (int rank = 0; rank < num_ranks; ++rank)
          reduction.source(rank) = arena.staging(rank, i, bytes);
        reduction.run(output, cut.begin(i), cut.length(i));
      });
}

void run(Arena& arena, const Ways&, const Operation& operation) {
  const bool has_own = operation.collective->op == Op::Scan;
  reduce_prefix(arena, operation, arena.rank() + (has_own ? 1 : 0));
}

constexpr Collective collective(Op op, const char* name) {
  return {.op = op,
          .name = name,
          .is_reduction = true,
          .check = check,
          .descriptor = descriptor,
          .bytes = bytes,
          .run = run};
}

}  // namespace

const Collective kScan = collective(Op::Scan, "scan");
const Collective kExscan = collective(Op::Exscan, "exscan");

}  // namespace allhands
