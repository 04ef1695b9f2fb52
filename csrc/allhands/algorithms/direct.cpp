#include "allhands/algorithms/direct.hpp"

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

}  // namespace allhands
