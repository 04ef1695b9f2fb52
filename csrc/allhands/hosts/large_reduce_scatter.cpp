#include <memory>

#include "allhands/arena/row.hpp"
#include "allhands/hosts/large.hpp"
#include "allhands/hosts/messages.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

// What ranks have for one, in rank order.
class RankArrays {
 public:
  RankArrays(DType dtype, std::size_t count, int size)
      : dtype_(dtype),
        count_(count),
        size_(size),
        memory_(std::make_unique_for_overwrite<std::byte[]>(
            static_cast<std::size_t>(size) * bytes())) {}

  Buffer of(int rank) const { return {at(rank), dtype_, count_, {}, 0}; }

  // Into what the first one has.
  Buffer reduced(ReduceOp op, const Factors& factors) const {
    std::vector<const void*> sources;
    for (int rank = 0; rank < size_; ++rank) sources.push_back(at(rank));
    reduce(dtype_, op, at(0), sources.data(), size_, count_, factors.data());
    return of(0);
  }

 private:
  std::size_t bytes() const { return count_ * size_of(dtype_); }
  std::byte* at(int rank) const {
    return memory_.get() + static_cast<std::size_t>(rank) * bytes();
  }

  const DType dtype_;
  const std::size_t count_;
  const int size_;
  std::unique_ptr<std::byte[]> memory_;
};

// `part(r)` is what this rank has for rank r, all of it one array; `pack_own(to)` does
// so with what it has for itself.
template <class Part, class PackOwn>
RankArrays gather_parts(const Crossing& crossing, DType dtype, std::size_t count,
                        Part part, PackOwn pack_own) {
  const int size = crossing.group.size(), self = crossing.group.rank;
  RankArrays gathered(dtype, count, size);
  Messages messages(crossing);
  for (int step = 1; step < size; ++step) {
    const int from = (self + size - step) % size, to = (self + step) % size;
    messages.receive(gathered.of(from), from);
    messages.send(part(to), to);
  }
  pack_own(static_cast<std::byte*>(gathered.of(self).data));
  messages.wait();
  return gathered;
}

}  // namespace

void large_reduce_scatter(const Crossing& crossing, const Operation& operation,
                          const Factors& factors) {
  const Buffer& output = operation.output;
  const auto input = [&](int rank) -> const Buffer& {
    return operation.inputs[static_cast<std::size_t>(rank)];
  };
  const RankArrays gathered = gather_parts(
      crossing, output.dtype, output.count, input,
      [&](std::byte* to) { pack(input(crossing.group.rank), 0, output.count, to); });
  const Buffer result = gathered.reduced(operation.reduce_op, factors);
  unpack(result.data, output, 0, output.count);
}

void large_reduce_scatter_coalesced(const Crossing& crossing,
                                    const Operation& operation,
                                    const Factors& factors) {
  const std::vector<Buffer>& outputs = operation.outputs;
  const DType dtype = dtype_of(outputs);
  const std::size_t count = count_of(outputs);
  // What goes to each rank, in a row.
  RankArrays rows(dtype, count, crossing.group.size());
  for (int rank = 0; rank < crossing.group.size(); ++rank)
    pack_row(part_of(operation.inputs, rank, outputs.size()), 0, count,
             static_cast<std::byte*>(rows.of(rank).data));
  const RankArrays gathered = gather_parts(
      crossing, dtype, count, [&](int rank) { return rows.of(rank); },
      [&](std::byte* to) { pack(rows.of(crossing.group.rank), 0, count, to); });
  const Buffer result = gathered.reduced(operation.reduce_op, factors);
  unpack_row(static_cast<std::byte*>(result.data), outputs, 0, count, Stores::Cached);
}

}  // namespace allhands
