#include "allhands/comm/operation.hpp"

#include "allhands/arena/collectives.hpp"

namespace allhands {

void Operation::run(Arena& arena, const Limits& limits) const {
  switch (op) {
    case Op::AllReduce:
      return all_reduce(arena, output, input, reduce_op, factor, limits);
    case Op::Reduce:
      return reduce(arena, input, root, reduce_op, factor, limits);
    case Op::ReduceScatter:
      return reduce_scatter(arena, output, inputs, reduce_op, factor, limits);
    case Op::Broadcast:
      return broadcast(arena, input, root, limits);
    case Op::AllGather:
      return all_gather(arena, outputs, input, limits);
    case Op::Gather:
      return gather(arena, outputs, input, root, limits);
    case Op::Scatter:
      return scatter(arena, output, inputs, root, limits);
    case Op::AllToAll:
      return all_to_all(arena, outputs, inputs, limits);
    case Op::Barrier:
      return barrier(arena, limits);
    case Op::EmptyShared:  // see SharedArrayMaker
    case Op::None:
      break;
  }
}

}  // namespace allhands
