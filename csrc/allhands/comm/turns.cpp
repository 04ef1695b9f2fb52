#include "allhands/comm/turns.hpp"

#include <algorithm>
#include <chrono>

#include "allhands/base/error.hpp"

namespace allhands {

void Turns::wait_in_line(Ticket ticket, const Limits& limits) {
  std::unique_lock lock(mutex_);
  ++attention_;
  while (current_ != ticket) {
    const Deadline::Duration slice = std::chrono::milliseconds(kInterruptSliceMs);
    changed_.wait_for(lock, std::min(slice, limits.deadline.remaining()));
    if (current_ == ticket) break;
    lock.unlock();  // the interrupt may take other locks
    const bool interrupted = limits.interrupt != nullptr && limits.interrupt();
    lock.lock();
    if (current_ == ticket && !interrupted) break;
    if (!interrupted && !limits.deadline.is_expired()) continue;
    given_up_.insert(ticket);  // still counts
    skip_given_up();
    if (interrupted) throw Error(ErrorKind::Interrupted, "interrupted");
    throw Error(ErrorKind::Timeout,
                "an operation issued earlier on the same group did not finish in time");
  }
  --attention_;
}

void Turns::call_next() {
  const std::lock_guard lock(mutex_);
  skip_given_up();
}

// Somebody may have a turn: then it is not one that was given up.
void Turns::skip_given_up() {
  while (given_up_.erase(current_) != 0) {
    --attention_;
    ++current_;
  }
  changed_.notify_all();
}

}  // namespace allhands
