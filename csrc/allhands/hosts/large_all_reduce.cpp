// By slices: a reduce-scatter within each host, an all_reduce or reduce of each slice
// between hosts, an all-gather or gather within each host. In rank order: every rank
// reduces a part of what all ranks have, and passes the result on.
#include <algorithm>
#include <memory>

#include "allhands/algorithms/bruck.hpp"
#include "allhands/algorithms/choose.hpp"
#include "allhands/algorithms/composition.hpp"
#include "allhands/algorithms/direct.hpp"
#include "allhands/algorithms/pairwise.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/base/extent.hpp"
#include "allhands/hosts/executor.hpp"
#include "allhands/hosts/in_blocks.hpp"
#include "allhands/hosts/large.hpp"
#include "allhands/hosts/messages.hpp"
#include "allhands/hosts/reduce_parts.hpp"
#include "allhands/hosts/slices.hpp"

namespace allhands {
namespace {

// Few participants exchange everything at once.
constexpr int kFewParticipants = 8;

// The algorithm of many participants, as if on a network of 25 Gbit/s. All must choose
// the same one, so no rank measures its own costs.
Schedule schedule_of_many(int rank, const Task& task, std::size_t element) {
  constexpr Costs kNetwork = {.latency = 12e-6,
                              .overhead = 2e-6,
                              .gap = 0.5e-6,
                              .per_byte = 1 / 3e9,
                              .per_byte_reduced = 1 / 10e9,
                              .per_byte_copied = 1 / 10e9};
  return choose(task, element, kNetwork, true).schedule(rank, task);
}

// Each part is rounded as one reduction in the order of the hosts, so that an average
// is one of all hosts.
Schedule all_reduce_schedule(int rank, int size, std::size_t count,
                             std::size_t element) {
  const Task task = Task::even(TaskKind::AllReduce, size, count);
  if (size > kFewParticipants) return schedule_of_many(rank, task, element);
  return all_reduce_of(rank, task.parts,
                       pairwise_reduce_scatter(rank, task.parts, size),
                       bruck_all_gather(rank, task.parts, std::max(size, 2)));
}

// The same for one of them. Of two participants one sends all it has.
Schedule reduce_schedule(int rank, int size, int root, std::size_t count,
                         std::size_t element) {
  const Task task = Task::even(TaskKind::Reduce, size, count, root);
  if (size > kFewParticipants) return schedule_of_many(rank, task, element);
  if (size == 2) {
    const std::size_t counts[] = {root == 0 ? count : 0, root == 0 ? 0 : count};
    return pairwise_reduce_scatter(rank, Partition(counts), size);
  }
  return reduce_of(rank, root, task.parts,
                   pairwise_reduce_scatter(rank, task.parts, size),
                   direct_gather(rank, root, task.parts));
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
bool must_be_in_rank_order(const Crossing& crossing, const Operation& operation,
                           DType dtype) {
  const Hosts& hosts = crossing.hosts;
  const ReduceOp op = operation.reduce_op;
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
                              const Buffer& from, const Buffer& to,
                              const Factors& factors) {
  const std::vector<Buffer> results = parts_of_all(crossing, to);
  const Buffer& own = results[static_cast<std::size_t>(crossing.group.rank)];
  reduce_parts(crossing, parts_of_all(crossing, from), own, operation.reduce_op,
               factors);
  large_all_gather(crossing,
                   {.collective = &kAllGather, .input = own, .outputs = results}, {});
}

// `result` is memory to work in for all ranks but the root.
void reduce_in_rank_order(const Crossing& crossing, const Operation& operation,
                          const Buffer& from, const Buffer& result,
                          const Factors& factors) {
  const std::vector<Buffer> results = parts_of_all(crossing, result);
  const Buffer& own = results[static_cast<std::size_t>(crossing.group.rank)];
  reduce_parts(crossing, parts_of_all(crossing, from), own, operation.reduce_op,
               factors);
  large_gather(crossing,
               {.collective = &kGather,
                .root = operation.root,
                .input = own,
                .outputs = results},
               {});
}

// A reduction by slices, as this rank carries it out.
class SlicedReduction {
 public:
  // Both arrays are contiguous.
  SlicedReduction(const Crossing& crossing, const Operation& operation,
                  const Buffer& input, const Buffer& output)
      : crossing_(crossing),
        operation_(operation),
        input_(input),
        output_(output),
        slices_(crossing, input.count),
        own_(slices_.own(output)) {}

  void all_reduce() const {
    reduce_within_host();
    if (slices_.has_own())
      exchange(all_reduce_schedule(hosts().host(), hosts().num_hosts(), own_.count,
                                   size_of(own_.dtype)));
    if (!is_alone())
      run_within_host(
          crossing_,
          {.collective = &kAllGather, .input = own_, .outputs = slices_.all(output_)});
  }

  void reduce() const {
    reduce_within_host();
    const int root = operation_.root, root_host = hosts().host_of(root);
    if (slices_.has_own())
      exchange(reduce_schedule(hosts().host(), hosts().num_hosts(), root_host,
                               own_.count, size_of(own_.dtype)));
    if (is_alone() || hosts().host() != root_host) return;
    Messages messages(crossing_);
    if (hosts().rank() != root) {
      if (slices_.has_own()) messages.send(own_, root);
    } else {
      for (const int rank : hosts().local_ranks())
        if (const int local = hosts().local_rank_of(rank);
            rank != root && slices_.has(local))
          messages.receive(slices_.of(output_, local), rank);
    }
    messages.wait();
  }

 private:
  const Hosts& hosts() const { return crossing_.hosts; }
  bool is_alone() const { return crossing_.arena.size() == 1; }
  // A host's part already consists of sums of products.
  bool has_factor() const { return operation_.reduce_op == ReduceOp::PremulSum; }
  bool is_reduced_first() const { return !is_alone() || has_factor(); }

  void reduce_within_host() const {
    if (!is_reduced_first()) return;
    run_within_host(crossing_, {.collective = &kReduceScatter,
                                .reduce_op = operation_.reduce_op,
                                .factor = operation_.factor,
                                .output = own_,
                                .inputs = slices_.all(input_)});
  }

  void exchange(const Schedule& schedule) const {
    execute(crossing_, schedule, slices_.participants(),
            is_reduced_first() ? own_ : input_, own_,
            has_factor() ? ReduceOp::Sum : operation_.reduce_op);
  }

  const Crossing& crossing_;
  const Operation& operation_;
  const Buffer& input_;
  const Buffer& output_;
  const HostSlices slices_;
  const Buffer own_;
};

void all_reduce_in_blocks(const Crossing& crossing, const Operation& operation,
                          const Row& input, const Row& output, const Factors& factors) {
  const bool is_in_rank_order =
      must_be_in_rank_order(crossing, operation, input.dtype());
  in_blocks(crossing, input, output, [&](const Buffer& from, const Buffer& to) {
    if (is_in_rank_order)
      all_reduce_in_rank_order(crossing, operation, from, to, factors);
    else
      SlicedReduction(crossing, operation, from, to).all_reduce();
  });
}

}  // namespace

void large_all_reduce(const Crossing& crossing, const Operation& operation,
                      const Factors& factors) {
  all_reduce_in_blocks(crossing, operation, Row({&operation.input, 1}),
                       Row({&operation.output, 1}), factors);
}

// Only the root writes its array.
void large_reduce(const Crossing& crossing, const Operation& operation,
                  const Factors& factors) {
  const bool is_in_rank_order =
      must_be_in_rank_order(crossing, operation, operation.input.dtype);
  const Buffers whole(&operation.input, 1);
  const bool is_root = crossing.group.rank == operation.root;
  in_blocks(crossing, Row(whole), Row(whole.first(is_root ? 1 : 0)),
            [&](const Buffer& from, const Buffer& to) {
              if (is_in_rank_order)
                reduce_in_rank_order(crossing, operation, from, to, factors);
              else
                SlicedReduction(crossing, operation, from, to).reduce();
            });
}

// Arrays that share elements must all be read before any is written.
void large_all_reduce_coalesced(const Crossing& crossing, const Operation& operation,
                                const Factors& factors) {
  const std::vector<Buffer> list = in_common_dtype(operation.inputs);
  const Row row(list);
  if (are_apart(list))
    return all_reduce_in_blocks(crossing, operation, row, row, factors);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(row.num_bytes());
  const Buffer copy = {memory.get(), row.dtype(), row.count(), {}, 0};
  row.pack(0, row.count(), memory.get());
  all_reduce_in_blocks(crossing, operation, Row({&copy, 1}), Row({&copy, 1}), factors);
  row.unpack(memory.get(), 0, row.count());
}

}  // namespace allhands
