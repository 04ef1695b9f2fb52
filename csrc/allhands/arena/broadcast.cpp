#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

namespace {

void check(const Operation& operation, int, int size) { check_root(operation, size); }

Descriptor descriptor(const Operation& operation) {
  return {.op = Op::Broadcast,
          .dtype = operation.input.dtype,
          .root = operation.root,
          .count = operation.input.count};
}

void broadcast(Arena& arena, const Ways& ways, const Operation& operation) {
  const Buffer& buffer = operation.input;
  const int root = operation.root;
  if (single_copy::broadcast(arena, ways, buffer, root)) return;
  const bool is_root = arena.rank() == root;
  const Cut cut = {buffer.count, arena.chunk_bytes() / size_of(buffer.dtype)};
  run_rounds(
      arena, cut.rounds(),
      [&](std::size_t i) {
        if (is_root)
          pack(buffer, cut.begin(i), cut.length(i),
               arena.staging(root, i, buffer.num_bytes()));
      },
      [&](std::size_t i) {
        if (!is_root)
          unpack(arena.staging(root, i, buffer.num_bytes()), buffer, cut.begin(i),
                 cut.length(i), ways.stores);
      });
}

}  // namespace

const Collective kBroadcast = {
    .op = Op::Broadcast,
    .name = "broadcast",
    .is_reduction = false,
    .check = check,
    .descriptor = descriptor,
    .bytes = [](const Operation& operation) { return operation.input.num_bytes(); },
    .run = broadcast,
};

}  // namespace allhands
