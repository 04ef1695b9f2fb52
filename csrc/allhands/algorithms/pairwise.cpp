#include "allhands/algorithms/pairwise.hpp"

#include <algorithm>

namespace allhands {

Schedule pairwise_all_to_all(int rank, const Partition& to_send,
                             const Partition& to_receive, int at_once) {
  const int size = to_send.size();
  const Step own = Step::copy(to_send.part(Memory::Input, rank),
                              to_receive.part(Memory::Output, rank));
  Schedule schedule;
  Round round;
  for (int i = 1; i < size; ++i) {
    const int to = round_about(rank, i, size), from = round_about(rank, -i, size);
    round.push_back(Step::send(to, to_send.part(Memory::Input, to)));
    round.push_back(Step::receive(from, to_receive.part(Memory::Output, from)));
    if (i % std::max(at_once, 1) != 0 && i != size - 1) continue;
    if (i <= at_once)
      round.push_back(own);  // while the first messages are on their way
    schedule.add(round);
    round.clear();
  }
  if (size == 1) schedule.add({own});
  return schedule;
}

Schedule pairwise_reduce_scatter(int rank, const Partition& parts, int at_once) {
  const int size = parts.size();
  const std::size_t count = parts.count(rank);
  const Range own = parts.part(Memory::Input, rank),
              reduced = {Memory::Output, 0, count};
  Schedule schedule;
  if (size == 1) {
    schedule.add({Step::copy(own, reduced)});
    return schedule;
  }
  if (size == 2) {
    const int peer = 1 - rank;
    schedule.add({Step::send(peer, parts.part(Memory::Input, peer)),
                  peer < rank ? Step::reduce_onto(peer, own, reduced)
                              : Step::reduce_with(own, peer, reduced)});
    return schedule;
  }
  const Partition received = Partition::equal(count, size);
  schedule = pairwise_all_to_all(rank, parts, received, at_once)
                 .moved(Memory::Output, Memory::Scratch, 0);
  schedule.add(
      {Step::reduce({Memory::Scratch, 0, received.total()}, size, 0, reduced)});
  return schedule;
}

}  // namespace allhands
