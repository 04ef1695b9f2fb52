// The state of one queued operation.
//
// Thread-safe. Completed once, by the progress thread; callbacks run in that thread, or
// at once in the caller's when the operation is already done.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "allhands/base/limits.hpp"

namespace allhands {

class Work {
 public:
  // Throws the operation's error; Timeout if `limits` end first, which leaves the
  // operation running; Interrupted.
  void wait(const Limits& limits);
  bool is_completed() const;
  // Null while the operation runs and when it succeeded.
  std::exception_ptr error() const;
  void on_done(std::function<void()> callback);

  // `error` null: success.
  void complete(std::exception_ptr error);

 private:
  mutable std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace allhands
