#include "allhands/comm/run.hpp"

#include <algorithm>

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/overlaps.hpp"
#include "allhands/comm/select.hpp"

namespace allhands {
namespace {

// Whether peers may learn where memory of this rank is; that memory must then stay
// valid.
bool shows_memory(const Operation& operation, const Ways& ways) {
  if (ways.may(Way::Mapped) || ways.may(Way::Cooperative)) return true;
  if (operation.collective->op != Op::AllToAll) return ways.may(Way::Read);
  return std::ranges::any_of(operation.inputs, [&](const Buffer& share) {
    return share.num_bytes() >= ways.least_share;
  });
}

void run(Arena& arena, std::uint64_t sequence, const Operation& operation,
         const Ways& ways, const Limits& limits, bool may_suspend) {
  const Collective& collective = *operation.collective;
  const bool is_new =
      arena.begin(sequence, collective.descriptor(operation), limits, may_suspend);
  if (is_new && collective.is_reduction) arena.set_factor(operation.factor);
  collective.run(arena, ways, operation);
}

}  // namespace

Ways ways_of(const Operation& operation, const Arena& arena) {
  const Collective& collective = *operation.collective;
  Ways ways = select({collective.op, collective.bytes(operation), arena.size(),
                      arena.can_read_peers(), arena.shared_arrays()->is_used()},
                     arena.tuning());
  const std::size_t written =
      operation.output.num_bytes() + num_bytes(operation.outputs);
  // If there is no output, the input is the output.
  ways.stores =
      stores_for(written != 0 ? written : operation.input.num_bytes(), arena.tuning());
  return ways;
}

void run(Arena& arena, std::uint64_t sequence, const Operation& operation,
         const Limits& limits, bool may_suspend) {
  const Ways ways = ways_of(operation, arena);
  if (may_suspend && shows_memory(operation, ways)) throw Suspended{};
  if (writes_own_inputs(operation, arena.rank()))
    run(arena, sequence, CopiedInputs(operation).operation(), ways, limits,
        may_suspend);
  else
    run(arena, sequence, operation, ways, limits, may_suspend);
}

}  // namespace allhands
