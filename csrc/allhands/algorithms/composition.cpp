#include "allhands/algorithms/composition.hpp"

namespace allhands {
namespace {

// Leaves out what is sent to the root.
Schedule without_sends_to(int root, const Schedule& schedule) {
  Schedule rest;
  for (Round round : schedule.rounds) {
    std::erase_if(round, [root](const Step& step) {
      return step.kind == StepKind::Send && step.peer == root;
    });
    rest.add(round);
  }
  return rest;
}

Schedule only_sends(const Schedule& schedule) {
  Schedule rest;
  for (Round round : schedule.rounds) {
    std::erase_if(round, [](const Step& step) { return step.kind != StepKind::Send; });
    rest.add(round);
  }
  return rest;
}

}  // namespace

Schedule all_reduce_of(int rank, const Partition& parts, const Schedule& reduce_scatter,
                       const Schedule& all_gather) {
  const std::size_t own = parts.at(rank);
  Schedule schedule = reduce_scatter.moved(Memory::Output, Memory::Output, own);
  schedule.append(all_gather.moved(Memory::Input, Memory::Output, own));
  return schedule;
}

Schedule reduce_of(int rank, int root, const Partition& parts,
                   const Schedule& reduce_scatter, const Schedule& gather) {
  const bool is_root = rank == root;
  const Memory reduced = is_root ? Memory::Output : Memory::Scratch;
  const std::size_t at = is_root ? parts.at(rank) : 0;
  const std::size_t taken = is_root ? 0 : parts.count(rank);
  Schedule schedule = reduce_scatter.moved(Memory::Scratch, Memory::Scratch, taken)
                          .moved(Memory::Output, reduced, at);
  schedule.append(gather.moved(Memory::Scratch, Memory::Scratch, taken)
                      .moved(Memory::Input, reduced, at));
  return schedule;
}

Schedule broadcast_of(int rank, int root, const Partition& parts,
                      const Schedule& scatter, const Schedule& all_gather) {
  const std::size_t own = parts.at(rank);
  if (rank == root) {
    Schedule schedule = only_sends(scatter);
    schedule.append(only_sends(all_gather)
                        .moved(Memory::Input, Memory::Input, own)
                        .moved(Memory::Output, Memory::Input, 0));
    return schedule;
  }
  Schedule schedule = scatter.moved(Memory::Output, Memory::Output, own);
  schedule.append(
      without_sends_to(root, all_gather).moved(Memory::Input, Memory::Output, own));
  return schedule;
}

}  // namespace allhands
