#include "allhands/algorithms/chain.hpp"

#include "allhands/algorithms/partition.hpp"

namespace allhands {
namespace {

// Whether there is a chunk i. The steps of a chain are described by the time at which
// they happen: chunk i is sent `hops` links later at time i + hops.
bool exists(const Partition& chunks, int i) { return i >= 0 && i < chunks.size(); }

}  // namespace

Schedule chain_broadcast(int rank, int size, int root, std::size_t count,
                         std::size_t chunk) {
  const Partition chunks = Partition::chunks(count, chunk);
  const int hops = round_about(rank, -root, size);  // from the root
  const int next = round_about(rank, 1, size), last = round_about(rank, -1, size);
  const Memory array = rank == root ? Memory::Input : Memory::Output;
  Schedule schedule;
  for (int time = 0; time < chunks.size() + size; ++time) {
    Round round;
    if (const int i = time - hops; exists(chunks, i) && hops < size - 1)
      round.push_back(Step::send(next, chunks.part(array, i)));
    if (const int i = time - hops + 1; exists(chunks, i) && hops > 0)
      round.push_back(Step::receive(last, chunks.part(array, i)));
    schedule.add(round);
  }
  return schedule;
}

Schedule chain_reduce(int rank, int size, int root, std::size_t count,
                      std::size_t chunk) {
  const Partition chunks = Partition::chunks(count, chunk);
  const int last = size - 1;
  // What arrives at one time is sent at the next, so two places are enough.
  const auto sum = [&](int i) -> Range {
    if (rank == 0) return chunks.part(Memory::Input, i);
    if (rank == last && rank == root) return chunks.part(Memory::Output, i);
    return {Memory::Scratch, i % 2 == 0 ? 0 : chunks.largest(), chunks.count(i)};
  };
  const int to = rank == last ? root : rank + 1;
  Schedule schedule;
  for (int time = 0; time < chunks.size() + size; ++time) {
    Round round;
    if (const int i = time - rank; exists(chunks, i) && to != rank)
      round.push_back(Step::send(to, sum(i)));
    if (const int i = time - rank + 1; exists(chunks, i) && rank > 0)
      round.push_back(
          Step::reduce_onto(rank - 1, chunks.part(Memory::Input, i), sum(i)));
    if (const int i = time - last; exists(chunks, i) && rank == root && rank != last)
      round.push_back(Step::receive(last, chunks.part(Memory::Output, i)));
    schedule.add(round);
  }
  if (size == 1)
    schedule.add({Step::copy({Memory::Input, 0, count}, {Memory::Output, 0, count})});
  return schedule;
}

Schedule chain_all_reduce(int rank, int size, std::size_t count, std::size_t chunk) {
  const Partition chunks = Partition::chunks(count, chunk);
  const int last = size - 1;
  // Of the result, when this participant sends it.
  const int hops_back = last + (last - rank);
  const auto sum = [&](int i) {
    return chunks.part(rank == 0 ? Memory::Input : Memory::Output, i);
  };
  Schedule schedule;
  for (int time = 0; time < chunks.size() + 2 * size; ++time) {
    Round round;
    if (const int i = time - rank; exists(chunks, i) && rank < last)
      round.push_back(Step::send(rank + 1, sum(i)));
    if (const int i = time - hops_back; exists(chunks, i) && rank > 0)
      round.push_back(Step::send(rank - 1, chunks.part(Memory::Output, i)));
    if (const int i = time - rank + 1; exists(chunks, i) && rank > 0)
      round.push_back(
          Step::reduce_onto(rank - 1, chunks.part(Memory::Input, i), sum(i)));
    if (const int i = time - hops_back + 1; exists(chunks, i) && rank < last)
      round.push_back(Step::receive(rank + 1, chunks.part(Memory::Output, i)));
    schedule.add(round);
  }
  if (size == 1)
    schedule.add({Step::copy({Memory::Input, 0, count}, {Memory::Output, 0, count})});
  return schedule;
}

}  // namespace allhands
