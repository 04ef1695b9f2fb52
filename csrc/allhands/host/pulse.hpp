// Whether a process still runs, found out once for all ranks that wait for it.
//
// Asking the kernel takes microseconds, and where many ranks wait for many, separate
// questions would take whole CPUs. So a rank that asks stores the time in shared
// memory, and the others rely on that for a moment. It does not matter if that rank
// dies or computes: the next one to wait asks instead. That a process has ended is not
// believed but asked again, as something may have overwritten the memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "allhands/host/process.hpp"

namespace allhands {

// The pulse of one process; in shared memory, zero at first.
struct Pulse {
  using Duration = std::chrono::steady_clock::duration;

  // The highest age of an answer. It is less than the pause between two questions of
  // one rank, so a rank never relies on its own answer.
  static constexpr std::chrono::milliseconds kFresh{50};

  std::atomic<Duration> asked_at;        // on the steady clock; 0: never
  std::atomic<std::uint32_t> has_ended;  // a rank has found that out
};

// is_alive(), as it was at most Pulse::kFresh ago.
bool is_alive(const ProcessIdentity& process, Pulse& pulse);

}  // namespace allhands
