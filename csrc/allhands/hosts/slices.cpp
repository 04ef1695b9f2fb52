#include "allhands/hosts/slices.hpp"

#include "allhands/arena/collectives.hpp"
#include "allhands/arena/ways.hpp"

namespace allhands {

void run_within_host(const Crossing& crossing, const Operation& operation) {
  Arena& arena = crossing.arena;
  const Collective& collective = *operation.collective;
  // Other ranks of this host may still be exchanging with other hosts.
  arena.begin_part(collective.descriptor(operation), crossing.patient_limits());
  if (collective.is_reduction) arena.set_factor(operation.factor);
  collective.run(arena, Ways().add(Way::Slots), operation);
}

}  // namespace allhands
