#include "allhands/arena/reduction.hpp"

#include "allhands/kernels/pack.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {

Reduction::Reduction(const Arena& arena, DType dtype, ReduceOp op, int num_ranks)
    : arena_(arena),
      dtype_(dtype),
      op_(op),
      sources_(static_cast<std::size_t>(num_ranks)) {}

void Reduction::run(void* result, std::size_t count) {
  if (op_ == ReduceOp::PremulSum && factors_.empty())
    for (std::size_t rank = 0; rank < sources_.size(); ++rank)
      factors_.push_back(arena_.factor(static_cast<int>(rank)));
  reduce(dtype_, op_, result, sources_.data(), static_cast<int>(sources_.size()), count,
         factors_.data());
}

void Reduction::run(const Buffer& output, std::size_t at, std::size_t count) {
  if (output.is_contiguous()) {
    run(output.slice(at, count).data, count);
    return;
  }
  scratch_.resize(count * size_of(dtype_));
  run(scratch_.data(), count);
  unpack(scratch_.data(), output, at, count);
}

}  // namespace allhands
