#include "allhands/hosts/small.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/hosts/agreement.hpp"
#include "allhands/kernels/reduce.hpp"

namespace allhands {
namespace {

using List = std::vector<Buffer>;

// The inputs for these ranks.
List inputs_for(const Operation& operation, int size, std::span<const int> ranks) {
  const std::size_t for_each = operation.inputs.size() / index(size);
  List inputs;
  for (const int rank : ranks) {
    const Buffers theirs = part_of(operation.inputs, rank, for_each);
    inputs.insert(inputs.end(), theirs.begin(), theirs.end());
  }
  return inputs;
}

// What this rank tells: its factor, if the operation has factors, and arrays in a row.
// One contiguous array stays where it is.
class Telling {
 public:
  Telling(const Operation& operation, const List& arrays) {
    const Row row(arrays);
    const bool has_factor = allhands::has_factor(operation);
    const std::byte* const there =
        has_factor ? nullptr : row.contiguous(0, row.count());
    if (there != nullptr) {
      bytes_ = {there, row.num_bytes()};
      return;
    }
    if (has_factor) append(packed_, &operation.factor, 1);
    const std::size_t head = packed_.size();
    packed_.resize(head + row.num_bytes());
    row.pack(0, row.count(), packed_.data() + head);
    bytes_ = packed_;
  }
  Telling(Telling&&) = default;  // a copy would show the original's bytes

  BytesView bytes() const { return bytes_; }

 private:
  Bytes packed_;
  BytesView bytes_;
};

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
  // The ranks of this host before this one.
  std::span<const int> ranks_before() const {
    const Hosts& hosts = crossing_.hosts;
    return std::span(hosts.local_ranks()).first(index(hosts.local_rank_of(rank())));
  }
  // The number of elements that a rank tells this host for them.
  std::size_t count_before() const {
    return count_of(inputs_for(operation_, size(), ranks_before()));
  }

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

  std::size_t head() const { return has_factor(operation_) ? sizeof(Factor) : 0; }

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
  // What this rank tells all others; or by host what it tells the ranks of each. One of
  // them is null. All arrays have one dtype.
  List (*row)(const Operation&, int rank);
  List (*row_to)(const Operation&, const Hosts&, int host);
  // Computes the outputs.
  void (*finish)(const Operation&, const Told&);
};

List input_of(const Operation& operation, int) { return {operation.input}; }
List inputs_of(const Operation& operation, int) { return operation.inputs; }
List inputs_in_common_dtype(const Operation& operation, int) {
  return in_common_dtype(operation.inputs);
}

List input_to_root(const Operation& operation, const Hosts& hosts, int host) {
  if (hosts.host_of(operation.root) != host) return {};
  return {operation.input};
}
List inputs_to(const Operation& operation, const Hosts& hosts, int host) {
  return inputs_for(operation, hosts.size(), hosts.ranks(host));
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
     [](const Operation&, int) { return List(); }, nullptr,
     [](const Operation&, const Told&) {}},
    {Op::AllReduce, input_of_each, input_of, nullptr,
     [](const Operation& operation, const Told& told) {
       reduce_prefix(operation, told, told.size());
     }},
    {Op::Reduce, input_of_each, nullptr, input_to_root,
     [](const Operation& operation, const Told& told) {
       if (told.rank() == operation.root)
         told.reduce_rows(told.size(), 0, {&operation.input, 1});
     }},
    {Op::ReduceScatter, inputs_of_each, nullptr, inputs_to,
     [](const Operation& operation, const Told& told) {
       told.reduce_rows(told.size(), told.count_before(), {&operation.output, 1});
     }},
    {Op::Broadcast,
     [](const Operation& operation, int) { return operation.input.num_bytes(); },
     [](const Operation& operation, int rank) {
       return rank == operation.root ? List{operation.input} : List();
     },
     nullptr,
     [](const Operation& operation, const Told& told) {
       if (told.rank() != operation.root)
         told.copy_row(operation.root, 0, {&operation.input, 1});
     }},
    {Op::AllGather,
     [](const Operation& operation, int) { return num_bytes(operation.outputs); },
     input_of, nullptr,
     [](const Operation& operation, const Told& told) {
       for (int rank = 0; rank < told.size(); ++rank)
         told.copy_row(rank, 0, {&operation.outputs[index(rank)], 1});
     }},
    {Op::Gather, input_of_each, nullptr, input_to_root,
     [](const Operation& operation, const Told& told) {
       for (int rank = 0; told.rank() == operation.root && rank < told.size(); ++rank)
         told.copy_row(rank, 0, {&operation.outputs[index(rank)], 1});
     }},
    {Op::Scatter,
     [](const Operation& operation, int size) {
       return operation.output.num_bytes() * static_cast<std::size_t>(size);
     },
     nullptr, inputs_to,
     [](const Operation& operation, const Told& told) {
       const std::size_t count = operation.output.count;
       told.copy_row(operation.root, told.ranks_before().size() * count,
                     {&operation.output, 1});
     }},
    {Op::Scan, input_of_each, input_of, nullptr,
     [](const Operation& operation, const Told& told) {
       reduce_prefix(operation, told, told.rank() + 1);
     }},
    {Op::Exscan, input_of_each, input_of, nullptr,
     [](const Operation& operation, const Told& told) {
       reduce_prefix(operation, told, told.rank());
     }},
    {Op::AllReduceCoalesced, inputs_of_each, inputs_in_common_dtype, nullptr,
     [](const Operation& operation, const Told& told) {
       told.reduce_rows(told.size(), 0, in_common_dtype(operation.inputs));
     }},
    {Op::AllGatherCoalesced, inputs_of_each, inputs_of, nullptr,
     [](const Operation& operation, const Told& told) {
       for (int rank = 0; rank < told.size(); ++rank)
         told.copy_row(rank, 0,
                       part_of(operation.outputs, rank, operation.inputs.size()));
     }},
    {Op::ReduceScatterCoalesced, inputs_of_each, nullptr, inputs_to,
     [](const Operation& operation, const Told& told) {
       told.reduce_rows(told.size(), told.count_before(), operation.outputs);
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

bool has_factor(const Operation& operation) {
  return operation.collective->is_reduction &&
         operation.reduce_op == ReduceOp::PremulSum;
}

void run_small(const Crossing& crossing, const Operation& operation) {
  const SmallForm& form = *form_of(operation.collective->op);
  const Descriptor descriptor = operation.collective->descriptor(operation);
  const auto finish = [&](const Contributions& contributions) {
    form.finish(operation, Told(crossing, operation, descriptor.dtype, contributions));
  };
  if (form.row != nullptr) {
    const Telling mine(operation, form.row(operation, crossing.group.rank));
    return finish(agree(crossing, descriptor, mine.bytes()));
  }
  std::vector<Telling> tellings;
  std::vector<BytesView> told;
  for (int host = 0; host < crossing.hosts.num_hosts(); ++host)
    tellings.emplace_back(operation, form.row_to(operation, crossing.hosts, host));
  for (const Telling& each : tellings) told.push_back(each.bytes());
  finish(agree_by_host(crossing, descriptor, told));
}

}  // namespace allhands
