// Waiting for something that another CPU is about to do: first spin, then yield.
//
// A peer that runs is seen within some 100 ns, so a short spin keeps system calls out
// of the fast path. If ranks outnumber the CPUs, a spin only keeps the peer from
// running; sched_yield lets it run in about a microsecond.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>

#include "allhands/host/contention.hpp"
#include "allhands/host/tuning.hpp"

namespace allhands {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// What the waits of this process have found out.
inline Contention contention_here;

// Returns true once `is_met()` is true, and false if it is time to sleep. `yield` lets
// others run; `now` is the time of Contention's clock.
template <class Condition, class Yield = int (*)(),
          class Now = Contention::Clock::time_point (*)()>
bool wait_awake(const Tuning& tuning, Condition is_met, Yield yield = sched_yield,
                Contention& contention = contention_here,
                Now now = Contention::Clock::now) {
  // A thread that yields does not notice that a peer has died.
  constexpr std::chrono::milliseconds kLongestYielding{5};
  for (std::uint64_t i = 0; i < tuning.spins; ++i) {
    if (is_met()) return true;
    pause_cpu();
  }
  const auto start = now();
  if (contention.is_likely(start)) return is_met();
  contention.note_wait();
  auto before = start;
  for (std::uint64_t i = 0; i < tuning.yields; ++i) {
    if (is_met()) return true;
    yield();
    const auto after = now();
    if (after - before > Contention::kSlice) {
      contention.note_long_yield(after);
      break;
    }
    if (after - start > kLongestYielding) break;
    before = after;
  }
  return is_met();
}

}  // namespace allhands
