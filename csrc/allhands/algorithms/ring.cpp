#include "allhands/algorithms/ring.hpp"

namespace allhands {

Schedule ring_reduce_scatter(int rank, const Partition& parts) {
  const int size = parts.size();
  const int next = round_about(rank, 1, size), last = round_about(rank, -1, size);
  const Range own = {Memory::Output, 0, parts.count(rank)};
  Schedule schedule;
  if (size == 1) schedule.add({Step::copy(parts.part(Memory::Input, rank), own)});
  // What was reduced in one round is sent in the next, so two places are enough.
  Range to_send = parts.part(Memory::Input, last);
  for (int i = 0; i < size - 1; ++i) {
    const int part = round_about(last, -1 - i, size);
    const std::size_t at = i % 2 == 0 ? 0 : parts.largest();
    const Range reduced =
        part == rank ? own : Range{Memory::Scratch, at, parts.count(part)};
    schedule.add({Step::send(next, to_send),
                  Step::reduce_onto(last, parts.part(Memory::Input, part), reduced)});
    to_send = reduced;
  }
  return schedule;
}

Schedule ring_all_gather(int rank, const Partition& parts) {
  const int size = parts.size();
  const int next = round_about(rank, 1, size), last = round_about(rank, -1, size);
  Range to_send = {Memory::Input, 0, parts.count(rank)};
  Schedule schedule;
  if (size == 1) schedule.add({Step::copy(to_send, parts.part(Memory::Output, rank))});
  for (int i = 0; i < size - 1; ++i) {
    const Range received = parts.part(Memory::Output, round_about(last, -i, size));
    Round round = {Step::send(next, to_send), Step::receive(last, received)};
    if (i == 0) round.push_back(Step::copy(to_send, parts.part(Memory::Output, rank)));
    schedule.add(round);
    to_send = received;
  }
  return schedule;
}

}  // namespace allhands
