#include "allhands/algorithms/composition.hpp"

#include <utility>

namespace allhands {
namespace {

// Messages to the root are empty, and only tell it when to go on. If the root sent all
// its data at once, this would delay what others need first.
Schedule with_nothing_for(int root, const Schedule& schedule) {
  Schedule changed;
  for (Round round : schedule.rounds) {
    for (Step& step : round)
      if (step.kind == StepKind::Send && step.peer == root) step.from = kNothing;
    changed.add_whole(std::move(round));
  }
  return changed;
}

// As the root does it, which already has all data.
Schedule with_nothing_received(const Schedule& schedule) {
  Schedule changed;
  for (Round round : schedule.rounds) {
    std::erase_if(round, [](const Step& step) { return step.kind == StepKind::Copy; });
    for (Step& step : round)
      if (step.kind == StepKind::Receive) step.to = kNothing;
    changed.add_whole(std::move(round));
  }
  return changed;
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

Schedule reduce_gathered(int rank, int root, const Partition& inputs,
                         const Schedule& gather) {
  if (rank != root || inputs.size() == 1) return gather;
  Schedule schedule = gather.moved(Memory::Output, Memory::Scratch, 0);
  schedule.add({Step::reduce({Memory::Scratch, 0, inputs.total()}, inputs.size(), 0,
                             {Memory::Output, 0, inputs.count(0)})});
  return schedule;
}

Schedule broadcast_of(int rank, int root, const Partition& parts,
                      const Schedule& scatter, const Schedule& all_gather) {
  const std::size_t own = parts.at(rank);
  if (rank == root) {
    Schedule schedule = with_nothing_received(scatter);  // nor copied
    schedule.append(with_nothing_received(all_gather)
                        .moved(Memory::Input, Memory::Input, own)
                        .moved(Memory::Output, Memory::Input, 0));
    return schedule;
  }
  Schedule schedule = scatter.moved(Memory::Output, Memory::Output, own);
  schedule.append(
      with_nothing_for(root, all_gather).moved(Memory::Input, Memory::Output, own));
  return schedule;
}

}  // namespace allhands
