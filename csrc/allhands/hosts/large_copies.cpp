// Large operations that copy directly from array to array.
#include <algorithm>

#include "allhands/algorithms/binomial.hpp"
#include "allhands/algorithms/chain.hpp"
#include "allhands/arena/collectives.hpp"
#include "allhands/arena/row.hpp"
#include "allhands/hosts/executor.hpp"
#include "allhands/hosts/in_blocks.hpp"
#include "allhands/hosts/large.hpp"
#include "allhands/hosts/messages.hpp"
#include "allhands/hosts/slices.hpp"
#include "allhands/hosts/small.hpp"

namespace allhands {
namespace {

// The schedule for a slice between hosts. A chain keeps all links busy once its first
// chunk has passed.
Schedule broadcast_schedule(const Hosts& hosts, int root, const Buffer& slice) {
  constexpr std::size_t kChunkBytes = std::size_t{512} << 10;
  const int host = hosts.host(), size = hosts.num_hosts();
  return size == 2 ? binomial_broadcast(host, size, root, slice.count)
                   : chain_broadcast(host, size, root, slice.count,
                                     kChunkBytes / size_of(slice.dtype));
}

}  // namespace

// All ranks of the root's host get the array first; then each slice goes from host to
// host.
void large_broadcast(const Crossing& crossing, const Operation& operation,
                     const Factors&) {
  const Hosts& hosts = crossing.hosts;
  const Buffer& array = operation.input;
  const bool is_alone = crossing.arena.size() == 1;
  const int root_host = hosts.host_of(operation.root);
  const bool has_root = hosts.host() == root_host;
  if (has_root && !is_alone)
    run_within_host(crossing, {.collective = &kBroadcast,
                               .root = hosts.local_rank_of(operation.root),
                               .output = array,
                               .input = array});
  const HostSlices slices(crossing, array.count);
  const Buffer own = slices.own(array);
  if (slices.has_own())
    execute(crossing, broadcast_schedule(hosts, root_host, own), slices.participants(),
            own, own, ReduceOp::Sum);
  if (!has_root && !is_alone)
    run_within_host(
        crossing,
        {.collective = &kAllGather, .input = own, .outputs = slices.all(array)});
}

// Each array goes to each other host once, and is spread there.
void large_all_gather(const Crossing& crossing, const Operation& operation,
                      const Factors&) {
  const Hosts& hosts = crossing.hosts;
  const Buffer& input = operation.input;
  const std::vector<Buffer>& outputs = operation.outputs;
  const int self = hosts.rank(), here = hosts.host();
  const auto taker_of = [&](int rank) {  // a rank of this host
    return hosts.counterpart(here, hosts.local_rank_of(rank));
  };
  Messages messages(crossing);
  for (int step = 1; step < hosts.num_hosts(); ++step) {
    const int host = (here + step) % hosts.num_hosts();
    messages.send(input, hosts.counterpart(host, hosts.local_rank_of(self)));
    for (const int rank : hosts.ranks(host))
      if (taker_of(rank) == self) messages.receive(outputs[index(rank)], rank);
  }
  if (crossing.arena.size() == 1) {
    copy(input, outputs[index(self)], 0, input.count);
    return messages.wait();
  }
  std::vector<Buffer> local;
  for (const int rank : hosts.local_ranks()) local.push_back(outputs[index(rank)]);
  run_within_host(crossing,
                  {.collective = &kAllGather, .input = input, .outputs = local});
  messages.wait();
  for (int rank = 0; rank < hosts.size(); ++rank)
    if (!hosts.is_local(rank))
      run_within_host(crossing, {.collective = &kBroadcast,
                                 .root = hosts.local_rank_of(taker_of(rank)),
                                 .output = outputs[index(rank)],
                                 .input = outputs[index(rank)]});
}

void large_all_gather_coalesced(const Crossing& crossing, const Operation& operation,
                                const Factors& factors) {
  const std::vector<Buffer>& inputs = operation.inputs;
  const int size = crossing.group.size();
  const Row input(inputs);
  const std::vector<Row> outputs = rows_of(operation.outputs, size);
  const std::size_t element = size_of(input.dtype());
  const Cut cut = blocks_of(input.count(), element, size);
  const KeptMemory::Loan memory =
      crossing.memory.lend(index(size) * cut.most * element);
  for (std::size_t i = 0; i < cut.rounds(); ++i) {
    const std::size_t at = cut.begin(i), count = cut.length(i);
    Operation one = {.collective = &kAllGather};
    for (std::size_t rank = 0; rank < outputs.size(); ++rank)
      one.outputs.push_back(
          {memory.data() + rank * cut.most * element, input.dtype(), count, {}, 0});
    one.input = one.outputs[index(crossing.group.rank)];
    input.pack(at, count, one.input.data);
    large_all_gather(crossing, one, factors);
    for (std::size_t rank = 0; rank < outputs.size(); ++rank)
      outputs[rank].unpack(one.outputs[rank].data, at, count);
  }
}

void large_gather(const Crossing& crossing, const Operation& operation,
                  const Factors&) {
  const int self = crossing.group.rank, root = operation.root;
  Messages messages(crossing);
  if (self != root) {
    messages.send(operation.input, root);
    return messages.wait();
  }
  for (int rank = 0; rank < crossing.group.size(); ++rank)
    if (rank != root) messages.receive(operation.outputs[index(rank)], rank);
  copy(operation.input, operation.outputs[index(root)], 0, operation.input.count);
  messages.wait();
}

void large_scatter(const Crossing& crossing, const Operation& operation,
                   const Factors&) {
  const int self = crossing.group.rank, root = operation.root;
  Messages messages(crossing);
  if (self != root) {
    messages.receive(operation.output, root);
    return messages.wait();
  }
  for (int rank = 0; rank < crossing.group.size(); ++rank)
    if (rank != root) messages.send(operation.inputs[index(rank)], rank);
  copy(operation.inputs[index(root)], operation.output, 0, operation.output.count);
  messages.wait();
}

void large_scan(const Crossing& crossing, const Operation& operation, const Factors&) {
  const std::size_t count = operation.input.count;
  const std::size_t most = std::max<std::size_t>(
      1, kSmallBytes / size_of(operation.input.dtype) / index(crossing.group.size()));
  for (std::size_t at = 0; at < count; at += most) {
    Operation piece = operation;
    piece.input = operation.input.slice(at, std::min(most, count - at));
    piece.output = operation.output.slice(at, piece.input.count);
    run_small(crossing, piece);
  }
}

}  // namespace allhands
