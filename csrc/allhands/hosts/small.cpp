#include "allhands/hosts/small.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/hosts/agreement.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

using List = std::vector<Buffer>;

// What all ranks have told one rank: for each its factor, if the operation has factors,
// and its arrays in a row.
class Told {
 public:
  Told(const Crossing& crossing, const Operation& operation, DType dtype,
       const Contributions& contributions)
      : crossing_(crossing),
        operation_(operation),
        dtype_(dtype),
        contributions_(contributions) {}

  int rank() const { return crossing_.group.rank; }
  int size() const { return crossing_.group.size(); }

  // Elements [at, at + count) of the row of `rank`.
  const std::byte* row(int rank, std::size_t at, std::size_t count) const {
    const BytesView told = contributions_.of(rank);
    const std::size_t begin = head() + at * size_of(dtype_);
    if (begin + count * size_of(dtype_) > told.size())
      throw nonsense_of(crossing_, rank);
    return told.data() + begin;
  }

  void copy_row(int rank, std::size_t at, Buffers to) const {
    const std::size_t count = count_of(to);
    Row(to).unpack(row(rank, at, count), 0, count);
  }

  // Reduces these elements of the first `num_ranks` ranks, in rank order.
  void reduce_rows(int num_ranks, std::size_t at, Buffers to) const {
    const std::size_t count = count_of(to);
    std::vector<const void*> sources;
    std::vector<Factor> factors;
    for (int rank = 0; rank < num_ranks; ++rank) {
      sources.push_back(row(rank, at, count));
      factors.emplace_back();
      if (head() != 0)
        std::memcpy(&factors.back(), contributions_.of(rank).data(), sizeof(Factor));
    }
    const auto reduce_to = [&](void* result) {
      reduce(dtype_, operation_.reduce_op, result, sources.data(), num_ranks, count,
             factors.data());
    };
    if (std::byte* const there = Row(to).contiguous(0, count)) return reduce_to(there);
    Bytes result(count * size_of(dtype_));
    reduce_to(result.data());
    Row(to).unpack(result.data(), 0, count);
  }

  std::size_t head() const {
    return operation_.collective->is_reduction &&
                   operation_.reduce_op == ReduceOp::PremulSum
               ? sizeof(Factor)
               : 0;
  }

 private:
  const Crossing& crossing_;
  const Operation& operation_;
  const DType dtype_;
  const Contributions& contributions_;
};

// How one operation is carried out in this way.
struct SmallForm {
  Op op;
  // The number of bytes that all ranks tell.
  std::size_t (*bytes)(const Operation&, int size);
  // What this rank tells; all arrays have one dtype.
  List (*row)(const Operation&, int rank);
  // Computes the outputs.
  void (*finish)(const Operation&, const Told&);
};

List input_of(const Operation& operation, int) { return {operation.input}; }
List inputs_of(const Operation& operation, int) { return operation.inputs; }
List inputs_in_common_dtype(const Operation& operation, int) {
  return in_common_dtype(operation.inputs);
}

std::size_t input_of_each(const Operation& operation, int size) {
  return operation.input.num_bytes() * static_cast<std::size_t>(size);
}
std::size_t inputs_of_each(const Operation& operation, int size) {
  return num_bytes(operation.inputs) * static_cast<std::size_t>(size);
}

void reduce_prefix(const Operation& operation, const Told& told, int num_ranks) {
  if (num_ranks > 0) told.reduce_rows(num_ranks, 0, {&operation.output, 1});
}

const SmallForm kForms[] = {
    {Op::Barrier, [](const Operation&, int) { return std::size_t{0}; },
     [](const Operation&, int) { return List(); },
     [](const Operation&, const Told&) {}},
    {Op::AllReduce, input_of_each, input_of,
     [](const Operation& operation, const Told& told) {
       reduce_prefix(operation, told, told.size());
     }},
    {Op::Reduce, input_of_each, input_of,
     [](const Operation& operation, const Told& told) {
       if (told.rank() == operation.root)
         told.reduce_rows(told.size(), 0, {&operation.input, 1});
     }},
    {Op::ReduceScatter, inputs_of_each, inputs_of,
     [](const Operation& operation, const Told& told) {
       const auto before = Buffers(operation.inputs).first(index(told.rank()));
       told.reduce_rows(told.size(), count_of(before), {&operation.output, 1});
     }},
    {Op::Broadcast,
     [](const Operation& operation, int) { return operation.input.num_bytes(); },
     [](const Operation& operation, int rank) {
       return rank == operation.root ? List{operation.input} : List();
     },
     [](const Operation& operation, const Told& told) {
       if (told.rank() != operation.root)
         told.copy_row(operation.root, 0, {&operation.input, 1});
     }},
    {Op::AllGather,
     [](const Operation& operation, int) { return num_bytes(operation.outputs); },
     input_of,
     [](const Operation& operation, const Told& told) {
       for (int rank = 0; rank < told.size(); ++rank)
         told.copy_row(rank, 0, {&operation.outputs[index(rank)], 1});
     }},
    {Op::Gather, input_of_each, input_of,
     [](const Operation& operation, const Told& told) {
       for (int rank = 0; told.rank() == operation.root && rank < told.size(); ++rank)
         told.copy_row(rank, 0, {&operation.outputs[index(rank)], 1});
     }},
    {Op::Scatter,
     [](const Operation& operation, int size) {
       return operation.output.num_bytes() * static_cast<std::size_t>(size);
     },
     inputs_of,
     [](const Operation& operation, const Told& told) {
       told.copy_row(operation.root, index(told.rank()) * operation.output.count,
                     {&operation.output, 1});
     }},
    {Op::Scan, input_of_each, input_of,
     [](const Operation& operation, const Told& told) {
       reduce_prefix(operation, told, told.rank() + 1);
     }},
    {Op::Exscan, input_of_each, input_of,
     [](const Operation& operation, const Told& told) {
       reduce_prefix(operation, told, told.rank());
     }},
    {Op::AllReduceCoalesced, inputs_of_each, inputs_in_common_dtype,
     [](const Operation& operation, const Told& told) {
       told.reduce_rows(told.size(), 0, in_common_dtype(operation.inputs));
     }},
    {Op::AllGatherCoalesced, inputs_of_each, inputs_of,
     [](const Operation& operation, const Told& told) {
       for (int rank = 0; rank < told.size(); ++rank)
         told.copy_row(rank, 0,
                       part_of(operation.outputs, rank, operation.inputs.size()));
     }},
    {Op::ReduceScatterCoalesced, inputs_of_each, inputs_of,
     [](const Operation& operation, const Told& told) {
       const std::size_t count = count_of(operation.outputs);
       told.reduce_rows(told.size(), index(told.rank()) * count, operation.outputs);
     }},
};

const SmallForm* form_of(Op op) {
  const auto* const found = std::ranges::find(kForms, op, &SmallForm::op);
  return found == std::end(kForms) ? nullptr : found;
}

}  // namespace

std::size_t told_bytes(const Operation& operation, int size) {
  const SmallForm* const form = form_of(operation.collective->op);
  return form == nullptr ? SIZE_MAX : form->bytes(operation, size);
}

void run_small(const Crossing& crossing, const Operation& operation) {
  const SmallForm& form = *form_of(operation.collective->op);
  const Descriptor descriptor = operation.collective->descriptor(operation);
  const List arrays = form.row(operation, crossing.group.rank);
  const Row row(arrays);
  const bool has_factor =
      operation.collective->is_reduction && operation.reduce_op == ReduceOp::PremulSum;
  const std::byte* const there = has_factor ? nullptr : row.contiguous(0, row.count());
  Bytes packed;
  if (there == nullptr) {
    if (has_factor) append(packed, &operation.factor, 1);
    const std::size_t head = packed.size();
    packed.resize(head + row.num_bytes());
    row.pack(0, row.count(), packed.data() + head);
  }
  const Contributions contributions =
      agree(crossing, descriptor,
            there == nullptr ? packed : BytesView(there, row.num_bytes()));
  form.finish(operation, Told(crossing, operation, descriptor.dtype, contributions));
}

}  // namespace allhands
