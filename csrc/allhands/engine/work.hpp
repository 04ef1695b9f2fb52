// The state of one queued operation.
//
// Thread-safe. The thread that ends the operation completes it, once. Callbacks run in
// that thread, or at once in the caller's thread if the operation is already done. As
// long as no thread sleeps on it and no callback is set, it costs one atomic word.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "allhands/base/wait.hpp"

namespace allhands {

class Work {
 public:
  // Throws the operation's error; Timeout if `limits` end first, which leaves the
  // operation running; Interrupted.
  void wait(const Limits& limits) {
    if (!is_completed()) sleep(limits);
    if (error_) std::rethrow_exception(error());
  }
  bool is_completed() const { return state_.load() == State::Done; }
  // Null while the operation runs and when it succeeded.
  std::exception_ptr error() const {
    if (!is_completed() || !error_) return nullptr;
    is_told_.store(true, std::memory_order_relaxed);
    return error_;
  }
  // The same for code that only watches: the error counts as told to nobody.
  std::exception_ptr outcome() const { return is_completed() ? error_ : nullptr; }
  // Whether it has failed and nobody has asked yet.
  bool has_untold_error() const {
    return is_completed() && error_ && !is_told_.load(std::memory_order_relaxed);
  }
  void on_done(std::function<void()> callback);

  // The caller was interrupted while it waited for the end, and may not come again.
  void forsake() { is_forsaken_.store(true, std::memory_order_relaxed); }
  bool is_forsaken() const { return is_forsaken_.load(std::memory_order_relaxed); }

  // `error` is null for success.
  void complete(std::exception_ptr error) {
    if (settle(std::move(error))) announce();
  }
  // The two halves of complete(). The first runs no callbacks, so it may be called
  // under a lock. If it returns true, the second must be called to tell those who wait.
  [[nodiscard]] bool settle(std::exception_ptr error);
  void announce();

 private:
  enum class State : std::uint32_t { Running, Watched, Done };

  void sleep(const Limits& limits);
  void watch();

  std::atomic<State> state_ = State::Running;
  std::exception_ptr error_;                   // written before Done
  mutable std::atomic<bool> is_told_ = false;  // somebody has got the error
  std::atomic<bool> is_forsaken_ = false;
  std::mutex mutex_;  // guards what follows
  std::condition_variable done_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace allhands
