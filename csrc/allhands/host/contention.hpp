// Whether something else computes on this process's CPUs.
//
// A yield to a program that computes lasts that program's whole time slice, some
// milliseconds, and the yielder gets nothing for it: a peer that is ready meanwhile
// cannot hand the CPU back. A process that sleeps gets the CPU when it is woken. So who
// found out by a long yield sleeps at once for a while, and then tries again.
//
// Where only ranks run, a yield of many takes a slice too: the kernel lets whoever has
// yielded often wait for those that have not. Sleeping there would cost each wait a
// wake-up, of 30 to 200 us, to save the few that take a slice. So a long yield counts
// only where few waits went well since the last one.
//
// That it was another rank, busy with large arrays, cannot be told apart. There the
// wake-ups cost little beside the copies.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace allhands {

// What the waits of a process have found out about it. Thread-safe.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;

  // A longer yield let something compute.
  static constexpr std::chrono::milliseconds kSlice{1};
  // After a long yield; twice as long after each that soon follows.
  static constexpr std::chrono::milliseconds kFirstWhile{10};
  static constexpr std::chrono::milliseconds kLongestWhile{320};
  static constexpr std::chrono::milliseconds kSoon{1000};
  // A slice of 3 ms is worth so many wake-ups, at least.
  static constexpr std::uint32_t kFew = 64;

  // One that yields begins.
  void note_wait() {
    num_waits_.store(num_waits_.load(std::memory_order_relaxed) + 1,
                     std::memory_order_relaxed);
  }
  bool is_likely(Clock::time_point now) const {
    return now.time_since_epoch() < end_.load(std::memory_order_relaxed);
  }
  void note_long_yield(Clock::time_point now) {
    if (num_waits_.exchange(0, std::memory_order_relaxed) > kFew) return;
    const Clock::duration at = now.time_since_epoch();
    const bool is_soon = at < end_.load(std::memory_order_relaxed) + kSoon;
    const Clock::duration last = while_.load(std::memory_order_relaxed);
    const Clock::duration next =
        is_soon ? std::min<Clock::duration>(2 * last, kLongestWhile) : kFirstWhile;
    while_.store(next, std::memory_order_relaxed);
    end_.store(at + next, std::memory_order_relaxed);
  }

 private:
  // On the steady clock, whose origin long ago is before any yield.
  std::atomic<Clock::duration> end_ = -Clock::duration(kSoon);
  std::atomic<Clock::duration> while_ = Clock::duration(kFirstWhile);
  // Since the last long yield; a count that two threads miss does not matter.
  std::atomic<std::uint32_t> num_waits_ = 0;
};

}  // namespace allhands
