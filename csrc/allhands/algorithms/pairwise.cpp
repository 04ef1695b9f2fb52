#include "allhands/algorithms/pairwise.hpp"

#include <algorithm>
#include <vector>

namespace allhands {

Schedule pairwise_all_to_all(int rank, const Partition& to_send,
                             const Partition& to_receive, int at_once) {
  const int size = to_send.size();
  Schedule schedule;
  Round round = {Step::copy(to_send.part(Memory::Input, rank),
                            to_receive.part(Memory::Output, rank))};
  for (int i = 1; i < size; ++i) {
    const int to = round_about(rank, i, size), from = round_about(rank, -i, size);
    round.push_back(Step::send(to, to_send.part(Memory::Input, to)));
    round.push_back(Step::receive(from, to_receive.part(Memory::Output, from)));
    if (i % std::max(at_once, 1) != 0) continue;
    schedule.add(round);
    round.clear();
  }
  schedule.add(round);
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
  const std::vector<std::size_t> counts(static_cast<std::size_t>(size), count);
  const Partition received(counts);
  schedule = pairwise_all_to_all(rank, parts, received, at_once)
                 .moved(Memory::Output, Memory::Scratch, 0);
  schedule.add(
      {Step::reduce({Memory::Scratch, 0, received.total()}, size, 0, reduced)});
  return schedule;
}

}  // namespace allhands
