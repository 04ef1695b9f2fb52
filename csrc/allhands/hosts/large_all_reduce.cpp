// By slices: a reduce-scatter within each host, an all_reduce of each slice between
// hosts, an all-gather within each host. In rank order: every rank reduces a part of
// what all ranks have, and passes the result on.
#include <algorithm>
#include <memory>
#include <optional>

#include "allhands/algorithms/bruck.hpp"
#include "allhands/algorithms/choose.hpp"
#include "allhands/algorithms/composition.hpp"
#include "allhands/algorithms/pairwise.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/hosts/executor.hpp"
#include "allhands/hosts/large.hpp"
#include "allhands/hosts/reduce_parts.hpp"
#include "allhands/hosts/slices.hpp"

namespace allhands {
namespace {

// A contiguous array in memory of its own, as large as another array.
struct Copy {
  explicit Copy(const Buffer& like)
      : memory(std::make_unique_for_overwrite<std::byte[]>(like.num_bytes())),
        buffer{memory.get(), like.dtype, like.count, {}, 0} {}

  std::unique_ptr<std::byte[]> memory;
  Buffer buffer;
};

// Each part is rounded as one reduction in the order of the hosts, so that an average
// is one of all hosts. Few participants exchange everything at once.
Schedule schedule_of(int rank, int size, std::size_t count, std::size_t element) {
  constexpr int kFewParticipants = 8;
  const Task task = Task::even(TaskKind::AllReduce, size, count);
  if (size <= kFewParticipants)
    return all_reduce_of(rank, task.parts,
                         pairwise_reduce_scatter(rank, task.parts, size),
                         bruck_all_gather(rank, task.parts, std::max(size, 2)));
  // A network of 25 Gbit/s. All participants must choose the same schedule, so no rank
  // measures its own costs.
  constexpr Costs kNetwork = {.latency = 12e-6,
                              .overhead = 2e-6,
                              .gap = 0.5e-6,
                              .per_byte = 1 / 3e9,
                              .per_byte_reduced = 1 / 10e9,
                              .per_byte_copied = 1 / 10e9};
  return choose(task, element, kNetwork, true).schedule(rank, task);
}

bool are_hosts_alike(const Hosts& hosts) {
  return hosts.num_slices() * hosts.num_hosts() == hosts.size();
}

// Whether partial results are rounded, so that the result differs from that of one
// reduction, or are averages.
bool depends_on_order(DType dtype, ReduceOp op) {
  if (op == ReduceOp::Min || op == ReduceOp::Max) return false;
  return op == ReduceOp::Avg || !is_integral(dtype);
}

// Whether a host must not reduce its ranks' arrays first. A host with one rank only
// multiplies with its factor.
bool must_be_in_rank_order(const Crossing& crossing, const Operation& operation) {
  const Hosts& hosts = crossing.hosts;
  const ReduceOp op = operation.reduce_op;
  const DType dtype = operation.input.dtype;
  if (hosts.num_hosts() == hosts.size() && op != ReduceOp::PremulSum) return false;
  if (operation.reduce_order == ReduceOrder::Rank) return depends_on_order(dtype, op);
  // An average of averages differs for integers from that of one host, and is wrong if
  // hosts have different numbers of ranks.
  return op == ReduceOp::Avg && (is_integral(dtype) || !are_hosts_alike(hosts));
}

// The part of an array that each rank reduces.
std::vector<Buffer> parts_of_all(const Crossing& crossing, const Buffer& array) {
  const Partition cut = Partition::even(array.count, crossing.group.size());
  std::vector<Buffer> parts;
  for (int rank = 0; rank < cut.size(); ++rank)
    parts.push_back(array.slice(cut.at(rank), cut.count(rank)));
  return parts;
}

void all_reduce_in_rank_order(const Crossing& crossing, const Operation& operation,
                              const Buffer& to, const Factors& factors) {
  const std::vector<Buffer> results = parts_of_all(crossing, to);
  const Buffer& own = results[static_cast<std::size_t>(crossing.group.rank)];
  reduce_parts(crossing, parts_of_all(crossing, operation.input), own,
               operation.reduce_op, factors);
  large_all_gather(crossing,
                   {.collective = &kAllGather, .input = own, .outputs = results}, {});
}

void reduce_in_rank_order(const Crossing& crossing, const Operation& operation,
                          const Factors& factors) {
  const std::vector<Buffer> parts = parts_of_all(crossing, operation.input);
  const Buffer& own = parts[static_cast<std::size_t>(crossing.group.rank)];
  const Copy result(own);  // only the root writes its array
  reduce_parts(crossing, parts, result.buffer, operation.reduce_op, factors);
  large_gather(crossing,
               {.collective = &kGather,
                .root = operation.root,
                .input = result.buffer,
                .outputs = parts},
               {});
}

// Both arrays are contiguous.
void run_by_slices(const Crossing& crossing, const Operation& operation,
                   const Buffer& input, const Buffer& output) {
  const Hosts& hosts = crossing.hosts;
  const HostSlices slices(crossing, input.count);
  const Buffer own = slices.own(output);
  // A host's part already consists of sums of products.
  const bool has_factor = operation.reduce_op == ReduceOp::PremulSum;
  const bool is_alone = crossing.arena.size() == 1;
  if (!is_alone || has_factor)
    run_within_host(crossing, {.collective = &kReduceScatter,
                               .reduce_op = operation.reduce_op,
                               .factor = operation.factor,
                               .output = own,
                               .inputs = slices.all(input)});
  if (slices.has_own())
    execute(crossing,
            schedule_of(hosts.host(), hosts.num_hosts(), own.count, size_of(own.dtype)),
            slices.participants(), is_alone && !has_factor ? input : own, own,
            has_factor ? ReduceOp::Sum : operation.reduce_op);
  if (!is_alone)
    run_within_host(
        crossing,
        {.collective = &kAllGather, .input = own, .outputs = slices.all(output)});
}

void all_reduce_by_slices(const Crossing& crossing, const Operation& operation,
                          const Buffer& to) {
  std::optional<Copy> input, output;
  if (!operation.input.is_contiguous()) {
    input.emplace(operation.input);
    pack(operation.input, 0, operation.input.count, input->memory.get());
  }
  if (!to.is_contiguous()) output.emplace(to);
  run_by_slices(crossing, operation, input ? input->buffer : operation.input,
                output ? output->buffer : to);
  if (output) unpack(output->memory.get(), to, 0, to.count);
}

void all_reduce_to(const Crossing& crossing, const Operation& operation,
                   const Buffer& to, const Factors& factors) {
  if (must_be_in_rank_order(crossing, operation))
    all_reduce_in_rank_order(crossing, operation, to, factors);
  else
    all_reduce_by_slices(crossing, operation, to);
}

}  // namespace

void large_all_reduce(const Crossing& crossing, const Operation& operation,
                      const Factors& factors) {
  all_reduce_to(crossing, operation, operation.output, factors);
}

void large_reduce(const Crossing& crossing, const Operation& operation,
                  const Factors& factors) {
  if (must_be_in_rank_order(crossing, operation))
    return reduce_in_rank_order(crossing, operation, factors);
  if (crossing.group.rank == operation.root)
    return all_reduce_by_slices(crossing, operation, operation.input);
  const Copy result(operation.input);
  all_reduce_by_slices(crossing, operation, result.buffer);
}

void large_all_reduce_coalesced(const Crossing& crossing, const Operation& operation,
                                const Factors& factors) {
  const std::vector<Buffer> list = in_common_dtype(operation.inputs);
  const Copy all({nullptr, dtype_of(list), count_of(list), {}, 0});
  pack_row(list, 0, all.buffer.count, all.memory.get());
  all_reduce_to(crossing,
                {.collective = &kAllReduce,
                 .reduce_op = operation.reduce_op,
                 .reduce_order = operation.reduce_order,
                 .factor = operation.factor,
                 .output = all.buffer,
                 .input = all.buffer},
                all.buffer, factors);
  unpack_row(all.memory.get(), list, 0, all.buffer.count, Stores::Cached);
}

}  // namespace allhands
