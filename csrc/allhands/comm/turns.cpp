#include "allhands/comm/turns.hpp"

#include <algorithm>
#include <chrono>

#include "allhands/base/error.hpp"

namespace allhands {

Turns::Ticket Turns::take() {
  const std::lock_guard lock(mutex_);
  return next_++;
}

void Turns::wait(Ticket ticket, const Limits& limits) {
  std::unique_lock lock(mutex_);
  while (current_ != ticket) {
    const Deadline::Duration slice = std::chrono::milliseconds(kInterruptSliceMs);
    ++num_waiting_;
    changed_.wait_for(lock, std::min(slice, limits.deadline.remaining()));
    --num_waiting_;
    if (current_ == ticket) return;
    lock.unlock();  // the interrupt may take other locks
    const bool interrupted = limits.interrupt != nullptr && limits.interrupt();
    lock.lock();
    if (current_ == ticket && !interrupted) return;
    if (!interrupted && !limits.deadline.is_expired()) continue;
    given_up_.insert(ticket);
    advance();
    if (interrupted) throw Error(ErrorKind::Interrupted, "interrupted");
    throw Error(ErrorKind::Timeout,
                "an operation issued earlier on the same group did not finish in time");
  }
}

void Turns::pass() {
  const std::lock_guard lock(mutex_);
  ++current_;
  advance();
}

void Turns::advance() {
  while (given_up_.erase(current_) != 0) ++current_;
  if (num_waiting_ > 0) changed_.notify_all();
}

bool Turns::is_idle() const {
  const std::lock_guard lock(mutex_);
  return current_ == next_;
}

}  // namespace allhands
