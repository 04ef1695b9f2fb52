// For which signal a rank sleeps, as it tells the others in one word of its
// RankControl. So a rank that gives up does not name ranks that only wait for others.
//
// The word counts only while the signal has not come. So it does not matter if it is
// out of date, as after a wait that has thrown.
#pragma once

#include <cstdint>

#include "allhands/arena/layout.hpp"

namespace allhands {

struct Awaited {
  int rank;             // that gives the signal; may be no rank if the word is garbage
  int signal;           // its number; see RankControl::signal
  std::uint32_t clock;  // that it has to reach

  // The clock, and above it one more than the place of the signal among those of all
  // ranks. So 0 means that the rank does not sleep.
  std::uint64_t word() const {
    const auto place =
        static_cast<std::uint64_t>(rank * RankControl::kNumSignals + signal + 1);
    return place << 32 | clock;
  }
  static Awaited of(std::uint64_t word) {
    const std::int64_t place = static_cast<std::int64_t>(word >> 32) - 1;
    if (place < 0) return {-1, 0, 0};
    return {static_cast<int>(place / RankControl::kNumSignals),
            static_cast<int>(place % RankControl::kNumSignals),
            static_cast<std::uint32_t>(word)};
  }
};

}  // namespace allhands
