#include "allhands/hosts/reduce_parts.hpp"

#include <cstddef>
#include <memory>

#include "allhands/hosts/messages.hpp"
#include "allhands/kernels/pack.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {

void reduce_parts(const Crossing& crossing, const std::vector<Buffer>& parts,
                  const Buffer& output, ReduceOp op,
                  const std::vector<Factor>& factors) {
  const int size = crossing.group.size(), self = crossing.group.rank;
  const std::size_t bytes = output.num_bytes();
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(index(size) * bytes);
  const auto place_of = [&](int rank) { return memory.get() + index(rank) * bytes; };
  Messages messages(crossing);
  for (int step = 1; step < size; ++step) {
    const int from = (self + size - step) % size, to = (self + step) % size;
    messages.receive({place_of(from), output.dtype, output.count, {}, 0}, from);
    messages.send(parts[index(to)], to);
  }
  std::vector<const void*> sources;
  for (int rank = 0; rank < size; ++rank) sources.push_back(place_of(rank));
  const Buffer& own = parts[index(self)];
  if (own.is_contiguous())
    sources[index(self)] = own.data;
  else
    pack(own, 0, own.count, place_of(self));
  messages.wait();
  // The result may replace a source, as no source is needed afterwards.
  void* const result = output.is_contiguous() ? output.data : place_of(self);
  reduce(output.dtype, op, result, sources.data(), size, output.count, factors.data());
  if (!output.is_contiguous()) unpack(result, output, 0, output.count);
}

}  // namespace allhands
