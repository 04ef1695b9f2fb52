#include "allhands/hosts/all_reduce_sparse.hpp"

#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/sparse.hpp"
#include "allhands/hosts/agreement.hpp"
#include "allhands/hosts/carry_out.hpp"

namespace allhands {
namespace {

// The number of rows that each rank has.
std::vector<std::size_t> numbers_of_rows(const Crossing& crossing,
                                         const Operation& operation) {
  const SparseArray& array = *operation.sparse;
  const std::uint64_t mine = array.indices.size();
  Bytes bytes;
  append(bytes, &mine, 1);
  const Contributions told =
      agree(crossing, operation.collective->descriptor(operation), bytes);
  std::vector<std::size_t> numbers;
  for (int rank = 0; rank < crossing.group.size(); ++rank) {
    std::uint64_t number;
    if (told.of(rank).size() != sizeof number) throw nonsense_of(crossing, rank);
    std::memcpy(&number, told.of(rank).data(), sizeof number);
    if (number > array.num_rows) throw nonsense_of(crossing, rank);
    numbers.push_back(number);
  }
  return numbers;
}

Buffer buffer_of(std::span<const std::int64_t> indices) {
  auto* const data = const_cast<std::int64_t*>(indices.data());  // it is only read
  return {data, DType::Int64, indices.size(), {}, 0};
}

// The rows that at least one rank has.
Indices gather_rows(const Crossing& crossing, const Operation& operation) {
  const SparseArray& array = *operation.sparse;
  std::vector<Indices> all;
  for (const std::size_t number : numbers_of_rows(crossing, operation))
    all.emplace_back(number);
  Operation gather = {.collective = &kAllGather, .input = buffer_of(array.indices)};
  for (const Indices& rows : all) gather.outputs.push_back(buffer_of(rows));
  carry_out(crossing, gather);
  for (int rank = 0; rank < crossing.group.size(); ++rank)
    if (!are_indices(all[static_cast<std::size_t>(rank)], array.num_rows))
      throw nonsense_of(crossing, rank);
  return united(std::move(all));
}

}  // namespace

void all_reduce_sparse(const Crossing& crossing, const Operation& operation) {
  SparseArray& array = *operation.sparse;
  try {
    array.all_indices = gather_rows(crossing, operation);
    lay_out(array);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::Backend,
                crossing.subject() + "no memory for the rows of all ranks");
  }
  if (array.sums_bytes() == 0) return;
  const Buffer sums = {.data = array.sums.get(),
                       .dtype = array.values.dtype,
                       .count = array.all_indices.size() * array.width,
                       .dimensions = {}};
  carry_out(crossing, {.collective = &kAllReduce,
                       .reduce_op = operation.reduce_op,
                       .reduce_order = operation.reduce_order,
                       .factor = operation.factor,
                       .output = sums,
                       .input = sums});
}

}  // namespace allhands
