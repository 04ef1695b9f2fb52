#include <memory>

#include "allhands/arena/row.hpp"
#include "allhands/hosts/large.hpp"
#include "allhands/hosts/reduce_parts.hpp"

namespace allhands {

void large_reduce_scatter(const Crossing& crossing, const Operation& operation,
                          const Factors& factors) {
  reduce_parts(crossing, operation.inputs, operation.output, operation.reduce_op,
               factors);
}

void large_reduce_scatter_coalesced(const Crossing& crossing,
                                    const Operation& operation,
                                    const Factors& factors) {
  const std::vector<Buffer>& outputs = operation.outputs;
  const DType dtype = dtype_of(outputs);
  const std::size_t count = count_of(outputs), bytes = count * size_of(dtype);
  const auto size = static_cast<std::size_t>(crossing.group.size());
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(size * bytes);
  std::vector<Buffer> rows;  // what goes to each rank
  for (int rank = 0; rank < crossing.group.size(); ++rank) {
    rows.push_back({memory.get() + rows.size() * bytes, dtype, count, {}, 0});
    pack_row(part_of(operation.inputs, rank, outputs.size()), 0, count,
             static_cast<std::byte*>(rows.back().data));
  }
  const Buffer& own = rows[static_cast<std::size_t>(crossing.group.rank)];
  reduce_parts(crossing, rows, own, operation.reduce_op, factors);
  unpack_row(static_cast<std::byte*>(own.data), outputs, 0, count, Stores::Cached);
}

}  // namespace allhands
