#include "allhands/comm/operation.hpp"

#include "allhands/arena/collectives.hpp"
#include "allhands/comm/select.hpp"

namespace allhands {
namespace {

std::size_t num_bytes(const std::vector<Buffer>& list) {
  std::size_t bytes = 0;
  for (const Buffer& buffer : list) bytes += buffer.num_bytes();
  return bytes;
}

// See Case::bytes. Where the shares of ranks differ, of the largest.
std::size_t bytes_of(const Operation& operation) {
  switch (operation.op) {
    case Op::AllToAll:
      return Case::kUnknown;
    case Op::AllGather:
      return largest_count(operation.outputs) * size_of(operation.input.dtype);
    case Op::ReduceScatter:
      return num_bytes(operation.inputs);
    case Op::Scatter:
      return operation.output.num_bytes();
    default:
      return operation.input.num_bytes();
  }
}

// What this rank writes.
std::size_t output_bytes_of(const Operation& operation) {
  switch (operation.op) {
    case Op::Broadcast:
      return operation.input.num_bytes();
    case Op::AllGather:
    case Op::Gather:
    case Op::AllToAll:
      return num_bytes(operation.outputs);
    default:
      return operation.output.num_bytes();
  }
}

}  // namespace

Descriptor Operation::descriptor() const {
  Descriptor d = {.op = op, .root = root};
  switch (op) {
    case Op::AllReduce:
    case Op::Reduce:
      d.reduce_op = reduce_op;
      [[fallthrough]];
    case Op::Broadcast:
    case Op::Gather:
      d.dtype = input.dtype;
      d.count = input.count;
      break;
    case Op::Scatter:
      d.dtype = output.dtype;
      d.count = output.count;
      break;
    case Op::ReduceScatter:
      d.dtype = output.dtype;
      d.reduce_op = reduce_op;
      d.count = largest_count(inputs);
      d.shares = digest_of_counts(inputs);
      break;
    case Op::AllGather:
      d.dtype = input.dtype;
      d.count = largest_count(outputs);
      d.shares = digest_of_counts(outputs);
      break;
    case Op::AllToAll:
      d.dtype = inputs.front().dtype;
      break;
    case Op::Barrier:
    case Op::EmptyShared:  // see SharedArrayMaker
    case Op::None:
      break;
  }
  return d;
}

Ways Operation::ways(const Arena& arena) const {
  const Case c = {op, bytes_of(*this), arena.size(), arena.can_read_peers(),
                  arena.shared_arrays()->is_used()};
  Ways ways = select(c, arena.tuning());
  ways.stores = stores_for(output_bytes_of(*this), arena.tuning());
  return ways;
}

void Operation::run(Arena& arena, const Limits& limits) const {
  arena.begin(descriptor(), limits);
  switch (op) {
    case Op::AllReduce:
      return all_reduce(arena, ways(arena), output, input, reduce_op, factor);
    case Op::Reduce:
      return reduce(arena, ways(arena), input, root, reduce_op, factor);
    case Op::ReduceScatter:
      return reduce_scatter(arena, ways(arena), output, inputs, reduce_op, factor);
    case Op::Broadcast:
      return broadcast(arena, ways(arena), input, root);
    case Op::AllGather:
      return all_gather(arena, ways(arena), outputs, input);
    case Op::Gather:
      return gather(arena, ways(arena), outputs, input, root);
    case Op::Scatter:
      return scatter(arena, ways(arena), output, inputs, root);
    case Op::AllToAll:
      return all_to_all(arena, ways(arena), outputs, inputs);
    case Op::Barrier:
      return barrier(arena);
    case Op::EmptyShared:  // see SharedArrayMaker
    case Op::None:
      break;
  }
}

}  // namespace allhands
