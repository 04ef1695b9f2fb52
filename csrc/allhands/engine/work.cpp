#include "allhands/engine/work.hpp"

#include <algorithm>
#include <chrono>
#include <string>

#include "allhands/base/error.hpp"
#include "allhands/base/seconds.hpp"

namespace allhands {

void Work::wait(const Limits& limits) {
  std::unique_lock lock(mutex_);
  while (!is_done_) {
    const Deadline::Duration slice = std::chrono::milliseconds(kInterruptSliceMs);
    done_.wait_for(lock, std::min(slice, limits.deadline.remaining()));
    if (is_done_) break;
    lock.unlock();  // the interrupt may take other locks
    if (limits.interrupt != nullptr && limits.interrupt())
      throw Error(ErrorKind::Interrupted, "interrupted");
    if (limits.deadline.is_expired())
      throw Error(ErrorKind::Timeout, "Work.wait: the operation did not finish in " +
                                          seconds(limits.deadline.limit()) +
                                          "; it goes on, wait again for its result");
    lock.lock();
  }
  if (error_) std::rethrow_exception(error_);
}

bool Work::is_completed() const {
  const std::lock_guard lock(mutex_);
  return is_done_;
}

std::exception_ptr Work::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Work::on_done(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_done_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void Work::complete(std::exception_ptr error) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    error_ = std::move(error);
    callbacks.swap(callbacks_);
  }
  done_.notify_all();
  for (const auto& callback : callbacks) callback();
}

}  // namespace allhands
