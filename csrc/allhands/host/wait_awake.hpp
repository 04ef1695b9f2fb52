// Waiting for something that another CPU is about to do: spin, then yield.
//
// A peer that runs is seen within some 100 ns, so a short spin makes the fast path free
// of system calls. When ranks outnumber the CPUs a spin only keeps the peer from
// running; sched_yield lets it run in about a microsecond.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>

#include "allhands/host/tuning.hpp"

namespace allhands {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// True once `is_met()` is. False: it is time to sleep. `yield` lets others run.
template <class Condition, class Yield = int (*)()>
bool wait_awake(const Tuning& tuning, Condition is_met, Yield yield = sched_yield) {
  // A yield to a program that computes lasts its whole time slice, some milliseconds;
  // 300 of them would be a second in which we neither see that a peer has died nor get
  // the CPU as soon as a peer wakes us.
  constexpr std::chrono::milliseconds kLongestYielding{5};
  for (std::uint64_t i = 0; i < tuning.spins; ++i) {
    if (is_met()) return true;
    pause_cpu();
  }
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 1; i <= tuning.yields; ++i) {
    if (is_met()) return true;
    yield();
    if (i % 8 == 0 && std::chrono::steady_clock::now() - start > kLongestYielding)
      break;
  }
  return is_met();
}

}  // namespace allhands
