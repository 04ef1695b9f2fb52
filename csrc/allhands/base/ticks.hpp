// The time in a flight record: cheap to take, and converted to a clock's time only when
// somebody reads it.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace allhands {

// Ticks of the CPU's time stamp counter, which takes half as long to read as the
// kernel's clock that is based on it; on other CPUs, nanoseconds of the steady clock.
using Ticks = std::uint64_t;

inline Ticks ticks_now() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return static_cast<Ticks>(std::chrono::steady_clock::now().time_since_epoch() /
                            std::chrono::nanoseconds(1));
#endif
}

// A clock's time at a number of ticks, from which other times are calculated.
class TickTimes {
 public:
  // `since` was made earlier; the longer ago, the more exact are the times.
  explicit TickTimes(const TickTimes* since = nullptr);

  // Nanoseconds since 1970 by this host's clock, as it was set when this was made.
  // Returns 0 for 0 ticks.
  std::int64_t wall_time(Ticks ticks) const;

 private:
  Ticks ticks_;
  std::int64_t steady_;  // nanoseconds
  std::int64_t wall_;
  double nanoseconds_ = 0;  // of one tick
};

}  // namespace allhands
