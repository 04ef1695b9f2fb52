#include "allhands/algorithms/dissemination.hpp"

#include <algorithm>
#include <utility>

#include "allhands/algorithms/partition.hpp"

namespace allhands {

Schedule dissemination_barrier(int rank, int size, int radix) {
  radix = std::clamp(radix, 2, std::max(size, 2));

  Schedule schedule;
  for (int known = 1; known < size; known *= radix) {
    Round round;
    for (int j = 1; j < radix && j * known < size; ++j) {
      round.push_back(Step::send(round_about(rank, j * known, size), kNothing));
      round.push_back(Step::receive(round_about(rank, -j * known, size), kNothing));
    }
    schedule.add_whole(std::move(round));
  }
  return schedule;
}

}  // namespace allhands
