// How a call that waits for long says for whom, to people rather than to the program.
// The core never prints: whoever makes a group passes a function that does, or none.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "allhands/base/deadline.hpp"

namespace allhands {

// Says of one group for whom its calls wait. Each time it takes twice as long until the
// next, so that ranks which are late by habit do not fill the screen. Thread-safe, but
// for copying.
class LateNotice {
 public:
  using Duration = Deadline::Duration;
  // Must not throw; called from any thread.
  using Say = std::function<void(const std::string& text)>;

  LateNotice() = default;
  // `after` so much of one wait.
  LateNotice(Say say, Duration after) : say_(std::move(say)), after_(after) {}
  LateNotice(const LateNotice& other)
      : say_(other.say_), after_(other.after_.load(std::memory_order_relaxed)) {}
  LateNotice& operator=(const LateNotice&) = delete;

  // True once: whoever asked is to say it.
  bool is_due(Duration waited) {
    if (say_ == nullptr) return false;
    Duration after = after_.load(std::memory_order_relaxed);
    return waited >= after &&
           after_.compare_exchange_strong(after, 2 * after, std::memory_order_relaxed);
  }
  // Nothing, if there is nothing to say.
  void say(const std::string& text) const {
    if (!text.empty()) say_(text);
  }

 private:
  const Say say_ = nullptr;
  std::atomic<Duration> after_{};
};

}  // namespace allhands
