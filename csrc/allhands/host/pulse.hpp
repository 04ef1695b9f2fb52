// Whether a process still runs, found out once for all who wait for it.
//
// Who asks the kernel takes microseconds, and where many ranks wait for many, each
// asking of each takes whole CPUs. So whoever asks leaves in shared memory when, and
// the others rely on that for a moment. A watcher that dies, or computes, is missed by
// nobody: the next one to wait asks in its place. That a process has ended is not
// believed, but asked again: something may have written over the memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "allhands/host/process.hpp"

namespace allhands {

// Of one process; in shared memory, zero at first.
struct Pulse {
  using Duration = std::chrono::steady_clock::duration;

  // How old an answer may be; less than the pause between two questions of one rank,
  // so that none of its own is.
  static constexpr std::chrono::milliseconds kFresh{50};

  std::atomic<Duration> asked_at;        // on the steady clock; 0: never
  std::atomic<std::uint32_t> has_ended;  // somebody has found that out
};

// is_alive(), as of Pulse::kFresh ago at most.
bool is_alive(const ProcessIdentity& process, Pulse& pulse);

}  // namespace allhands
