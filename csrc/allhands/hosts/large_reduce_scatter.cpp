#include "allhands/arena/row.hpp"
#include "allhands/hosts/in_blocks.hpp"
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
  const int size = crossing.group.size();
  const Row output(outputs);
  const std::vector<Row> inputs = rows_of(operation.inputs, size);
  const std::size_t element = size_of(output.dtype());
  const Cut cut = blocks_of(output.count(), element, size);
  const KeptMemory::Loan memory =
      crossing.memory.lend(index(size) * cut.most * element);
  for (std::size_t i = 0; i < cut.rounds(); ++i) {
    const std::size_t at = cut.begin(i), count = cut.length(i);
    std::vector<Buffer> parts;  // what goes to each rank
    for (const Row& input : inputs) {
      std::byte* const place = memory.data() + parts.size() * cut.most * element;
      input.pack(at, count, place);
      parts.push_back({place, output.dtype(), count, {}, 0});
    }
    const Buffer& own = parts[index(crossing.group.rank)];
    reduce_parts(crossing, parts, own, operation.reduce_op, factors);
    output.unpack(own.data, at, count);
  }
}

}  // namespace allhands
