// The time that a flight record takes: cheap, and turned into that of a clock only when
// somebody reads it.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace allhands {

// Of the CPU's time stamp counter, which takes half as long to read as the clock that
// the kernel makes of it; elsewhere nanoseconds of the steady clock.
using Ticks = std::uint64_t;

inline Ticks ticks_now() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return static_cast<Ticks>(std::chrono::steady_clock::now().time_since_epoch() /
                            std::chrono::nanoseconds(1));
#endif
}

// What a clock showed at a number of ticks, from which other times follow.
class TickTimes {
 public:
  // `since`: made earlier; the longer ago, the more exact.
  explicit TickTimes(const TickTimes* since = nullptr);

  // Nanoseconds since 1970 by this host's clock, as set when this was made; 0 of 0.
  std::int64_t wall_time(Ticks ticks) const;

 private:
  Ticks ticks_;
  std::int64_t steady_;  // nanoseconds
  std::int64_t wall_;
  double nanoseconds_ = 0;  // of one tick
};

}  // namespace allhands
