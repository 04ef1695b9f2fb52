// One phase: everybody stages everything and reduces everything. Two phases, chunk by
// chunk: every rank reduces its part of the chunk and publishes the result, then copies
// the other parts out (reduce-scatter and all-gather fused). Each element is reduced in
// rank order either way, so the bits do not depend on the size of the message.
#include <algorithm>
#include <vector>

#include "allhands/arena/collectives.hpp"
#include "allhands/kernels/pack.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

// Below this many staged bytes per group (n * B) a second phase costs more than the
// redundant reduction; see docs/design.
constexpr std::size_t kOnePhaseBytes = std::size_t{32} << 10;
constexpr std::size_t kCacheLine = 64;

class AllReduce {
 public:
  AllReduce(Arena& arena, const Buffer& output, const Buffer& input, ReduceOp op)
      : arena_(arena),
        output_(output),
        input_(input),
        op_(op),
        element_(size_of(input.dtype)),
        sources_(static_cast<std::size_t>(arena.size())) {}

  void run_one_phase() {
    const std::size_t bytes = input_.num_bytes();
    pack(input_, 0, input_.count, arena_.payload(arena_.rank(), bytes));
    arena_.enter();
    for (int rank = 0; rank < arena_.size(); ++rank)
      sources_[rank] = arena_.payload(rank, bytes);
    if (output_.is_contiguous()) {
      reduce_to(output_.data, input_.count);
    } else {
      std::vector<std::byte> result(bytes);
      reduce_to(result.data(), input_.count);
      unpack(result.data(), output_, 0, output_.count);
    }
  }

  // The staging of chunk i + 1 overlaps the peers' reduction of chunk i. That is safe:
  // it writes only parts that this rank does not own, and nobody reads those of chunk
  // i - 1 once all have published their results of it.
  void run_two_phases() {
    const auto size = static_cast<std::size_t>(arena_.size());
    share_ = round_down(arena_.slot_bytes() / element_ / size);
    chunk_ = share_ * size;
    const std::size_t chunks = (input_.count + chunk_ - 1) / chunk_;
    stage(0);
    arena_.enter();
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

 private:
  struct Part {
    std::size_t in_slot;  // element offsets
    std::size_t in_array;
    std::size_t length;
  };

  // The part of chunk i that `rank` reduces. It has its own place in every slot, also
  // when the last chunk is shorter; see run_two_phases.
  Part part(std::size_t i, int rank) const {
    const std::size_t at = i * chunk_;
    const std::size_t length = std::min(chunk_, input_.count - at);
    const auto size = static_cast<std::size_t>(arena_.size());
    const std::size_t share = round_down((length + size - 1) / size + line() - 1);
    const auto index = static_cast<std::size_t>(rank);
    const std::size_t begin = std::min(length, share * index);
    return {share_ * index, at + begin, std::min(share, length - begin)};
  }

  // Parts begin on cache lines of their own.
  std::size_t line() const { return kCacheLine / element_; }
  std::size_t round_down(std::size_t count) const { return count / line() * line(); }

  std::byte* staged(std::size_t i, int rank, const Part& part) const {
    return arena_.slot(rank, i) + part.in_slot * element_;
  }

  void stage(std::size_t i) {
    for (int owner = 0; owner < arena_.size(); ++owner) {
      if (owner == arena_.rank()) continue;
      const Part p = part(i, owner);
      pack(input_, p.in_array, p.length, staged(i, arena_.rank(), p));
    }
  }

  void reduce_own_part(std::size_t i) {
    const Part p = part(i, arena_.rank());
    std::byte* result = staged(i, arena_.rank(), p);
    for (int rank = 0; rank < arena_.size(); ++rank)
      sources_[rank] = staged(i, rank, p);
    if (input_.is_contiguous())
      sources_[arena_.rank()] =
          static_cast<const std::byte*>(input_.data) + p.in_array * element_;
    else
      pack(input_, p.in_array, p.length, result);
    reduce_to(result, p.length);
    unpack(result, output_, p.in_array, p.length);
  }

  void copy_out(std::size_t i, std::uint32_t reduced) {
    for (int step = 1; step < arena_.size(); ++step) {
      const int owner = (arena_.rank() + step) % arena_.size();
      const Part p = part(i, owner);
      arena_.wait(owner, reduced);
      unpack(staged(i, owner, p), output_, p.in_array, p.length);
    }
  }

  void reduce_to(void* result, std::size_t count) {
    const double* factors = nullptr;
    if (op_ == ReduceOp::PremulSum) {
      factors_.resize(sources_.size());
      for (int rank = 0; rank < arena_.size(); ++rank)
        factors_[rank] = arena_.factor(rank);
      factors = factors_.data();
    }
    reduce(input_.dtype, op_, result, sources_.data(), arena_.size(), count, factors);
  }

  Arena& arena_;
  const Buffer& output_;
  const Buffer& input_;
  const ReduceOp op_;
  const std::size_t element_;
  std::size_t share_ = 0;  // elements of a whole chunk that one rank reduces
  std::size_t chunk_ = 0;  // elements of a whole chunk
  std::vector<const void*> sources_;
  std::vector<double> factors_;
};

}  // namespace

void all_reduce(Arena& arena, const Buffer& output, const Buffer& input, ReduceOp op,
                double factor, const Limits& limits) {
  arena.begin({.op = Op::AllReduce,
               .dtype = input.dtype,
               .reduce_op = op,
               .count = input.count},
              limits);
  arena.set_factor(factor);
  AllReduce call(arena, output, input, op);
  if (input.num_bytes() * static_cast<std::size_t>(arena.size()) <= kOnePhaseBytes)
    call.run_one_phase();
  else
    call.run_two_phases();
}

}  // namespace allhands
