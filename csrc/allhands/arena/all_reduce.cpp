// One phase: every rank stages all of its input, and each rank that needs the result
// reduces everything. Two phases, chunk by chunk: every rank reduces its part of the
// chunk and publishes the result, then each rank that needs the result copies the other
// parts out (reduce-scatter and all-gather, or gather, fused). Each element is reduced
// in rank order either way, so the bits do not depend on the size of the message.
#include "allhands/arena/all_reduce.hpp"

#include <algorithm>

#include "allhands/arena/checks.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/reduction.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/arena/single_copy.hpp"
#include "allhands/kernels/copy_bytes.hpp"

namespace allhands {
namespace {

constexpr std::size_t kCacheLine = 64;

// Bytes that are reduced before their results are copied: few enough that these, and
// what they overwrite, are still in the first cache. 32 KiB and more take 1.1 times as
// long.
constexpr std::size_t kBlock = std::size_t{8} << 10;

class AllReduce {
 public:
  // `output` of no arrays: this rank helps but needs no result. `is_for_one`: one rank
  // does.
  AllReduce(Arena& arena, Buffers output, Buffers input, ReduceOp op, bool is_for_one)
      : arena_(arena),
        output_(output),
        is_for_one_(is_for_one),
        input_(input),
        element_(size_of(input_.dtype())),
        reduction_(arena, input_.dtype(), op) {}

  // Runs in one phase, in which every rank reduces all of it, or in two.
  void run(const Ways& ways) {
    if (ways.may(Way::Tree) && input_.num_bytes() <= kInlineBytes) return run_in_tree();
    if (!ways.may(Way::OnePhase)) return run_two_phases();
    arena_.enter([&] { stage_all(); });
    if (output_.arrays().empty()) return;
    set_staged_sources();
    if (output_.arrays().size() == 1)
      return reduction_.run(output_.arrays().front(), 0, output_.count());
    // One reduction for all of many small arrays.
    std::byte* const result = arena_.scratch(output_.num_bytes());
    reduction_.run(result, output_.count());
    output_.unpack(result, 0, output_.count());
  }

 private:
  void run_in_tree() {
    const std::byte* const result =
        arena_.enter_for_result([&] { stage_all(); },
                                [&](std::byte* to) {
                                  set_staged_sources();
                                  reduction_.run(to, input_.count());
                                });
    output_.unpack(result, 0, output_.count());
  }

  void stage_all() {
    std::byte* const to = arena_.staging(arena_.rank(), 0, input_.num_bytes());
    input_.pack(0, input_.count(), to);
  }

  void set_staged_sources() {
    for (int rank = 0; rank < arena_.size(); ++rank)
      reduction_.source(rank) = arena_.staging(rank, 0, input_.num_bytes());
  }

  // The staging of chunk i + 1 overlaps the peers' reduction of chunk i. That is safe:
  // staging writes only parts that this rank does not own, and nobody reads those parts
  // of chunk i - 1 once all ranks have published their results for it.
  void run_two_phases() {
    const auto size = static_cast<std::size_t>(arena_.size());
    share_ = round_down(arena_.chunk_bytes() / element_ / size);
    chunk_ = share_ * size;
    const std::size_t chunks = Cut{input_.count(), chunk_}.rounds();
    arena_.enter([this] { stage(0); });
    arena_.use_chunks(chunks);
    for (std::size_t i = 0; i < chunks; ++i) {
      reduce_own_part(i);
      const std::uint32_t reduced = arena_.publish();
      const bool is_last = i + 1 == chunks;
      if (!is_last) stage(i + 1);
      const std::uint32_t staged = is_last ? reduced : arena_.publish();
      copy_out(i, reduced);
      arena_.wait_all(staged);
    }
  }

  struct Part {
    std::size_t in_slot;  // element offsets
    std::size_t in_array;
    std::size_t length;
  };

  // The part of chunk i that `rank` reduces. It has a fixed place in every slot, even
  // if the last chunk is shorter; see run_two_phases.
  Part part(std::size_t i, int rank) const {
    const Cut chunks = {input_.count(), chunk_};
    const std::size_t length = chunks.length(i);
    const auto size = static_cast<std::size_t>(arena_.size());
    const std::size_t share = round_down((length + size - 1) / size + line() - 1);
    const auto index = static_cast<std::size_t>(rank);
    const std::size_t begin = std::min(length, share * index);
    return {share_ * index, chunks.begin(i) + begin, std::min(share, length - begin)};
  }

  // Parts begin on cache lines of their own.
  std::size_t line() const { return kCacheLine / element_; }
  std::size_t round_down(std::size_t count) const { return count / line() * line(); }

  std::byte* staged(std::size_t i, int rank, const Part& part) const {
    return arena_.slot(rank, i) + part.in_slot * element_;
  }

  // Where `owner` leaves its result: in its own slot. If there are only two ranks, it
  // is in the other's slot, over what that rank staged: those cache lines are on their
  // way to `owner` already, and nobody else reads them. That saves one of four
  // transfers, a quarter of the time.
  std::byte* result_of(std::size_t i, int owner, const Part& part) const {
    return staged(i, arena_.size() == 2 ? 1 - owner : owner, part);
  }

  void stage(std::size_t i) {
    for (int owner = 0; owner < arena_.size(); ++owner) {
      if (owner == arena_.rank()) continue;
      const Part p = part(i, owner);
      input_.pack(p.in_array, p.length, staged(i, arena_.rank(), p));
    }
  }

  void reduce_own_part(std::size_t i) {
    const Part own = part(i, arena_.rank());
    const Cut blocks = {own.length, kBlock / element_};
    for (std::size_t k = 0; k < blocks.rounds(); ++k) {
      const std::size_t at = blocks.begin(k);
      reduce_block(i, {own.in_slot + at, own.in_array + at, blocks.length(k)});
    }
  }

  // Reduces straight into the output, if there is one: the output is in this core's
  // caches, while the slot's lines are in other cores' caches.
  void reduce_block(std::size_t i, const Part& block) {
    for (int rank = 0; rank < arena_.size(); ++rank)
      reduction_.source(rank) = staged(i, rank, block);
    if (const std::byte* const own = input_.contiguous(block.in_array, block.length))
      reduction_.source(arena_.rank()) = own;
    else
      input_.pack(block.in_array, block.length, staged(i, arena_.rank(), block));
    std::byte* const result = result_of(i, arena_.rank(), block);
    if (std::byte* const own = output_.contiguous(block.in_array, block.length)) {
      reduction_.run(own, block.length);
      if (!is_for_one_) copy_bytes(result, own, block.length * element_);
    } else {
      reduction_.run(result, block.length);
      if (!output_.arrays().empty())
        output_.unpack(result, block.in_array, block.length);
    }
  }

  void copy_out(std::size_t i, std::uint32_t reduced) {
    for (int step = 1; step < arena_.size(); ++step) {
      const int owner = (arena_.rank() + step) % arena_.size();
      const Part p = part(i, owner);
      arena_.wait(owner, reduced);
      if (!output_.arrays().empty())
        output_.unpack(result_of(i, owner, p), p.in_array, p.length);
    }
  }

  Arena& arena_;
  const Row output_;
  const bool is_for_one_;
  const Row input_;
  const std::size_t element_;
  Reduction reduction_;
  std::size_t share_ = 0;  // elements of a whole chunk that one rank reduces
  std::size_t chunk_ = 0;  // elements of a whole chunk
};

void check_all_reduce(const Operation& operation, int, int) {
  check_reduction(operation, operation.input.dtype);
  check_dtype(operation.output, operation.input.dtype);
  check_count(operation, "the output", operation.output, operation.input.count);
}

void check_reduce(const Operation& operation, int, int size) {
  check_reduction(operation, operation.input.dtype);
  check_root(operation, size);
}

Descriptor descriptor(const Operation& operation) {
  return {.op = operation.collective->op,
          .dtype = operation.input.dtype,
          .reduce_op = operation.reduce_op,
          .reduce_order = operation.reduce_order,
          .root = operation.root,
          .count = operation.input.count};
}

std::size_t bytes(const Operation& operation) { return operation.input.num_bytes(); }

void all_reduce(Arena& arena, const Ways& ways, const Operation& operation) {
  const Buffer &output = operation.output, &input = operation.input;
  const ReduceOp op = operation.reduce_op;
  if (single_copy::all_reduce(arena, ways, output, input, op)) return;
  AllReduce(arena, {&output, 1}, {&input, 1}, op, false).run(ways);
}

void reduce(Arena& arena, const Ways& ways, const Operation& operation) {
  const Buffer& buffer = operation.input;
  const ReduceOp op = operation.reduce_op;
  if (single_copy::reduce(arena, ways, buffer, operation.root, op)) return;
  const Buffers whole(&buffer, 1);
  AllReduce(arena, whole.first(arena.rank() == operation.root ? 1 : 0), whole, op, true)
      .run(ways);
}

}  // namespace

void all_reduce_row(Arena& arena, const Ways& ways, Buffers list, ReduceOp op) {
  AllReduce(arena, list, list, op, false).run(ways);
}

const Collective kAllReduce = {
    .op = Op::AllReduce,
    .name = "all_reduce",
    .is_reduction = true,
    .check = check_all_reduce,
    .descriptor = descriptor,
    .bytes = bytes,
    .run = all_reduce,
};

const Collective kReduce = {
    .op = Op::Reduce,
    .name = "reduce",
    .is_reduction = true,
    .check = check_reduce,
    .descriptor = descriptor,
    .bytes = bytes,
    .run = reduce,
};

}  // namespace allhands
