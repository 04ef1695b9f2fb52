// Counts changes of something, for threads that wait until it changes again.
//
// A thread reads the count, checks its condition, and waits until the count has moved
// on. So it misses no change. There is no lock, so a process may fork at any time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "allhands/base/futex.hpp"
#include "allhands/base/wait.hpp"

namespace allhands::store {

// A count of changes to wait on. Thread-safe.
class ChangeCount {
 public:
  std::uint32_t now() const { return count_.load(); }

  void increase() {
    count_.fetch_add(1);
    // In a forked child the threads that waited are gone; then this only makes a
    // needless call.
    if (num_waiting_.load() > 0) futex_wake_all(count_);
  }

  // Returns once the count differs from `seen`; false if the deadline passed first.
  // Throws Interrupted.
  bool wait_beyond(std::uint32_t seen, const Limits& limits) {
    const Waiting waiting(num_waiting_);
    const Wait wait(limits);
    while (count_.load() == seen) {
      futex_wait(count_, seen, wait.slice());
      if (wait.look() != WaitEnd::None) return count_.load() != seen;
    }
    return true;
  }

 private:
  struct Waiting {
    explicit Waiting(std::atomic<std::uint32_t>& number) : num(number) { ++num; }
    ~Waiting() { --num; }
    std::atomic<std::uint32_t>& num;
  };

  std::atomic<std::uint32_t> count_ = 0;
  std::atomic<std::uint32_t> num_waiting_ = 0;
};

}  // namespace allhands::store
