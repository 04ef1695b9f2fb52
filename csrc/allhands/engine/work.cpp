#include "allhands/engine/work.hpp"

#include <string>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/seconds.hpp"

namespace allhands {

// Call under the mutex, before relying on being told.
void Work::watch() {
  State running = State::Running;
  state_.compare_exchange_strong(running, State::Watched);
}

void Work::sleep(const Limits& limits) {
  std::unique_lock lock(mutex_);
  watch();
  const WaitEnd end =
      Wait(limits).sleep_on(done_, lock, [this] { return is_completed(); });
  if (end == WaitEnd::None) return;
  throw Error(ErrorKind::Timeout,
              "Work.wait timed out: the operation did not finish in " +
                  seconds(limits.deadline.limit()) +
                  "; it goes on, wait again for its result");
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
