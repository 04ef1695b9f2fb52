#include "allhands/engine/work.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/seconds.hpp"

namespace allhands {

// Under the mutex, before somebody relies on being told.
void Work::watch() {
  State running = State::Running;
  state_.compare_exchange_strong(running, State::Watched);
}

void Work::sleep(const Limits& limits) {
  std::unique_lock lock(mutex_);
  watch();
  while (!is_completed()) {
    const Deadline::Duration slice = std::chrono::milliseconds(kInterruptSliceMs);
    done_.wait_for(lock, std::min(slice, limits.deadline.remaining()));
    if (is_completed()) break;
    lock.unlock();  // the interrupt may take other locks
    if (limits.interrupt != nullptr && limits.interrupt())
      throw Error(ErrorKind::Interrupted, "interrupted");
    if (limits.deadline.is_expired())
      throw Error(ErrorKind::Timeout, "Work.wait: the operation did not finish in " +
                                          seconds(limits.deadline.limit()) +
                                          "; it goes on, wait again for its result");
    lock.lock();
  }
}

void Work::on_done(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    watch();
    if (!is_completed()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

bool Work::settle(std::exception_ptr error) {
  error_ = std::move(error);
  return state_.exchange(State::Done) == State::Watched;
}

void Work::announce() {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    callbacks.swap(callbacks_);
  }
  done_.notify_all();
  for (const auto& callback : callbacks) callback();
}

}  // namespace allhands
