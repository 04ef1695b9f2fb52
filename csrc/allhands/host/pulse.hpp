// Whether a process still runs, found out once for all ranks that wait for it; and
// whether it has left a group whose shared memory it never had.
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
#include <functional>

#include "allhands/host/process.hpp"

namespace allhands {

// The pulse of one process; in shared memory, zero at first.
struct Pulse {
  using Duration = std::chrono::steady_clock::duration;

  static Duration now() { return std::chrono::steady_clock::now().time_since_epoch(); }

  // The highest age of an answer. It is less than the pause between two questions of
  // one rank, so a rank never relies on its own answer.
  static constexpr std::chrono::milliseconds kFresh{50};

  // How long the ranks pause before each look for a departure: when many come, some
  // wait for others that are about to come. Also how long they go without asking
  // whether the process of that number is still the same one.
  static constexpr std::chrono::seconds kPause{1};

  std::atomic<Duration> asked_at;        // on the steady clock; 0: never
  std::atomic<Duration> known_at;        // which process it is, likewise
  std::atomic<Duration> looked_at;       // for a departure, likewise
  std::atomic<std::uint32_t> has_ended;  // a rank has found that out
};

// is_alive(), as it was at most Pulse::kFresh ago. A process that took over the number
// of one that has ended counts as that one for Pulse::kPause at most, if this process
// may read its memory.
bool is_alive(const ProcessIdentity& process, Pulse& pulse,
              Pulse::Duration now = Pulse::now());

// Whether a rank of this host has left the group, as far as that is told outside the
// group's shared memory. Takes some 100 us.
using HasDeparted = std::function<bool(int rank)>;

// The same at most once per Pulse::kPause for all that wait for `rank`, the first time
// after that pause; false meanwhile, and if `has_departed` is empty.
bool has_departed_lately(int rank, const HasDeparted& has_departed, Pulse& pulse,
                         Pulse::Duration now = Pulse::now());

}  // namespace allhands
