// How a call that waits for long tells people for which ranks it waits. The core never
// prints: the maker of a group passes a function that does, or none.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "allhands/base/deadline.hpp"

namespace allhands {

// Tells for which ranks the calls of one group wait. The time to the next notice
// doubles with each one, so that ranks that are usually late do not fill the screen.
// Thread-safe, except for copying.
class LateNotice {
 public:
  using Duration = Deadline::Duration;
  // Must not throw; called from any thread.
  using Say = std::function<void(const std::string& text)>;

  LateNotice() = default;
  // `after`: how long a wait lasts before the first notice.
  LateNotice(Say say, Duration after) : say_(std::move(say)), after_(after) {}
  LateNotice(const LateNotice& other)
      : say_(other.say_), after_(other.after_.load(std::memory_order_relaxed)) {}
  LateNotice& operator=(const LateNotice&) = delete;

  // Returns true once; then the caller must call say().
  bool is_due(Duration waited) {
    if (say_ == nullptr) return false;
    Duration after = after_.load(std::memory_order_relaxed);
    return waited >= after &&
           after_.compare_exchange_strong(after, 2 * after, std::memory_order_relaxed);
  }
  // Says nothing if `text` is empty.
  void say(const std::string& text) const {
    if (!text.empty()) say_(text);
  }

 private:
  const Say say_ = nullptr;
  std::atomic<Duration> after_{};
};

}  // namespace allhands
