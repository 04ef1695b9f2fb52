#include "allhands/algorithms/dissemination.hpp"

#include <algorithm>

#include "allhands/algorithms/partition.hpp"

namespace allhands {

Schedule dissemination_barrier(int rank, int size, int radix) {
  radix = std::clamp(radix, 2, std::max(size, 2));
  const Range nothing = {Memory::Output, 0, 0};
  Schedule schedule;
  for (int known = 1; known < size; known *= radix) {
    Round round;
    for (int j = 1; j < radix && j * known < size; ++j) {
      round.push_back(Step::send(round_about(rank, j * known, size), nothing));
      round.push_back(Step::receive(round_about(rank, -j * known, size), nothing));
    }
    schedule.rounds.push_back(round);  // add() leaves out what has no elements
  }
  return schedule;
}

}  // namespace allhands
