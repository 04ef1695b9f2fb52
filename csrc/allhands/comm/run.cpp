#include "allhands/comm/run.hpp"

#include "allhands/arena/collectives.hpp"
#include "allhands/comm/overlaps.hpp"
#include "allhands/comm/select.hpp"

namespace allhands {

Ways ways_of(const Operation& operation, const Arena& arena) {
  const Collective& collective = *operation.collective;
  const Op op = collective.goes_as == Op::None ? collective.op : collective.goes_as;
  Ways ways = select({op, collective.bytes(operation), arena.size(),
                      arena.can_read_peers(), arena.shared_arrays()->is_used()},
                     arena.tuning());
  const std::size_t written =
      operation.output.num_bytes() + num_bytes(operation.outputs);
  // Where there is no output, the input is it.
  ways.stores =
      stores_for(written != 0 ? written : operation.input.num_bytes(), arena.tuning());
  return ways;
}

void run(Arena& arena, std::uint64_t sequence, const Operation& operation,
         const Limits& limits, const Limits* waiter) {
  if (writes_own_inputs(operation, arena.rank())) {
    const CopiedInputs copied(operation);
    return run(arena, sequence, copied.operation(), limits, waiter);
  }
  const Collective& collective = *operation.collective;
  arena.begin(sequence, collective.descriptor(operation), limits, waiter);
  if (collective.is_reduction) arena.set_factor(operation.factor);
  collective.run(arena, ways_of(operation, arena), operation);
}

}  // namespace allhands
