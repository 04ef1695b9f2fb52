#include "allhands/algorithms/direct.hpp"

#include "allhands/algorithms/composition.hpp"

namespace allhands {

Schedule direct_gather(int rank, int root, const Partition& parts) {
  const Range own = {Memory::Input, 0, parts.count(rank)};
  Schedule schedule;
  if (rank != root) {
    schedule.add({Step::send(root, own)});
    return schedule;
  }
  Round round;
  for (int i = 1; i < parts.size(); ++i) {
    const int from = round_about(root, i, parts.size());
    round.push_back(Step::receive(from, parts.part(Memory::Output, from)));
  }
  round.push_back(Step::copy(own, parts.part(Memory::Output, root)));
  schedule.add(round);
  return schedule;
}

Schedule direct_scatter(int rank, int root, const Partition& parts) {
  const Range own = {Memory::Output, 0, parts.count(rank)};
  Schedule schedule;
  if (rank != root) {
    schedule.add({Step::receive(root, own)});
    return schedule;
  }
  Round round;
  for (int i = 1; i < parts.size(); ++i) {
    const int to = round_about(root, i, parts.size());
    round.push_back(Step::send(to, parts.part(Memory::Input, to)));
  }
  round.push_back(Step::copy(parts.part(Memory::Input, root), own));
  schedule.add(round);
  return schedule;
}

Schedule direct_broadcast(int rank, int size, int root, std::size_t count) {
  Schedule schedule;
  if (rank != root) {
    schedule.add({Step::receive(root, {Memory::Output, 0, count})});
    return schedule;
  }
  Round round;
  for (int i = 1; i < size; ++i)
    round.push_back(Step::send(round_about(root, i, size), {Memory::Input, 0, count}));
  schedule.add(round);
  return schedule;
}

Schedule direct_reduce(int rank, int size, int root, std::size_t count) {
  const Partition inputs = Partition::equal(count, size);
  return reduce_gathered(rank, root, inputs, direct_gather(rank, root, inputs));
}

}  // namespace allhands
