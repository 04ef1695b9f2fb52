// Whether other programs compute on this process's CPUs.
//
// A yield to a program that computes lasts that program's whole time slice, some
// milliseconds, and gains nothing: a peer that becomes ready meanwhile cannot hand the
// CPU back. A process that sleeps gets the CPU when it is woken. So a process that
// finds out by a long yield sleeps at once for a while, and then tries yields again.
//
// If only ranks run, one yield of many takes a slice too: the kernel lets a process
// that has yielded often wait for those that have not. Sleeping there would cost each
// wait a wake-up, of 30 to 200 us, to save the few yields that take a slice. So a long
// yield counts only if few waits have gone well since the last one.
//
// It cannot be told apart from this that another rank computed, busy with large arrays.
// The wake-ups cost little then compared with the copies.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace allhands {

// What the waits of a process have found out about contention. Thread-safe.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;

  // During a longer yield, something computed.
  static constexpr std::chrono::milliseconds kSlice{1};
  // How long to sleep after a long yield; twice as long after each that soon follows.
  static constexpr std::chrono::milliseconds kFirstWhile{10};
  static constexpr std::chrono::milliseconds kLongestWhile{320};
  static constexpr std::chrono::milliseconds kSoon{1000};
  // The number of wake-ups that a slice of 3 ms is worth, at least.
  static constexpr std::uint32_t kFew = 64;

  // Call when a wait that yields begins.
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
  // On the steady clock; the initial value is before any yield.
  std::atomic<Clock::duration> end_ = -Clock::duration(kSoon);
  std::atomic<Clock::duration> while_ = Clock::duration(kFirstWhile);
  // Since the last long yield. It does not matter if two threads lose a count.
  std::atomic<std::uint32_t> num_waits_ = 0;
};

}  // namespace allhands
