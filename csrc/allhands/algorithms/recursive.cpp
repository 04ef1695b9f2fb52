#include "allhands/algorithms/recursive.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "allhands/algorithms/partition.hpp"

namespace allhands {
namespace {

// The participants that remain after neighbours have been folded: a power of two, which
// get numbers of their own.
struct Fold {
  Fold(int rank, int size)
      : num(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        num_pairs(size - num),
        is_paired(rank < 2 * num_pairs),
        is_left(!is_paired || rank % 2 == 0),
        neighbour(rank ^ 1),
        number(is_paired ? rank / 2 : rank - num_pairs) {}

  int rank_of(int i) const { return i < num_pairs ? 2 * i : i + num_pairs; }
  int peer(int distance) const { return rank_of(number ^ distance); }

  int num;
  int num_pairs;
  bool is_paired;
  bool is_left;  // takes part in the exchanges
  int neighbour;
  int number;
};

// `from` and what the peer sends are reduced into `to`; the lower participant's is the
// left operand.
Step exchange(const Fold& fold, int distance, const Range& from, const Range& to) {
  const int peer = fold.peer(distance);
  return (fold.number & distance) != 0 ? Step::reduce_onto(peer, from, to)
                                       : Step::reduce_with(from, peer, to);
}

// The schedule of a participant that was folded away.
Schedule folded(const Fold& fold, std::size_t count) {
  Schedule schedule;
  schedule.add({Step::send(fold.neighbour, {Memory::Input, 0, count})});
  schedule.add({Step::receive(fold.neighbour, {Memory::Output, 0, count})});
  return schedule;
}

}  // namespace

Schedule doubling_all_reduce(int rank, int size, std::size_t count) {
  const Fold fold(rank, size);
  if (!fold.is_left) return folded(fold, count);
  const Range input = {Memory::Input, 0, count}, output = {Memory::Output, 0, count},
              scratch = {Memory::Scratch, 0, count};
  Schedule schedule;
  Range sum = input;
  if (fold.is_paired) {
    schedule.add({Step::reduce_with(input, fold.neighbour, output)});
    sum = output;
  }
  // What is being sent must not be written meanwhile, and Input may be Output.
  for (int distance = 1; distance < fold.num; distance *= 2) {
    const Range next = sum == scratch ? output : scratch;
    schedule.add(
        {Step::send(fold.peer(distance), sum), exchange(fold, distance, sum, next)});
    sum = next;
  }
  schedule.add({Step::copy(sum, output)});
  if (fold.is_paired) schedule.add({Step::send(fold.neighbour, output)});
  return schedule;
}

Schedule halving_all_reduce(int rank, int size, std::size_t count) {
  const Fold fold(rank, size);
  if (!fold.is_left) return folded(fold, count);
  Schedule schedule;
  Range sum = {Memory::Input, 0, count};
  const auto in_output = [](Range range) {
    range.memory = Memory::Output;
    return range;
  };
  if (fold.is_paired) {
    schedule.add({Step::reduce_with(sum, fold.neighbour, in_output(sum))});
    sum = in_output(sum);
  }
  std::vector<Range> sent;  // the half of each exchange that the peer reduced
  for (int distance = 1; distance < fold.num; distance *= 2) {
    const Range lower = sum.part(0, sum.count / 2);
    const Range upper = sum.part(sum.count / 2, sum.count - sum.count / 2);
    const bool is_upper = (fold.number & distance) != 0;
    const Range kept = is_upper ? upper : lower;
    sent.push_back(is_upper ? lower : upper);
    schedule.add({Step::send(fold.peer(distance), sent.back()),
                  exchange(fold, distance, kept, in_output(kept))});
    sum = in_output(kept);
  }
  schedule.add({Step::copy(sum, in_output(sum))});  // with one participant
  for (int distance = fold.num / 2; distance >= 1; distance /= 2) {
    const Range missing = in_output(sent.back());
    schedule.add({Step::send(fold.peer(distance), sum),
                  Step::receive(fold.peer(distance), missing)});
    sum = {Memory::Output, std::min(sum.at, missing.at), sum.count + missing.count};
    sent.pop_back();
  }
  if (fold.is_paired) schedule.add({Step::send(fold.neighbour, sum)});
  return schedule;
}

}  // namespace allhands
