#include "allhands/comm/turns.hpp"

#include "allhands/base/counted.hpp"
#include "allhands/base/error.hpp"

namespace allhands {

void Turns::wait_in_line(Ticket ticket, const Limits& limits) {
  std::unique_lock lock(mutex_);
  ++attention_;
  WaitEnd end = WaitEnd::None;
  try {
    end = Wait(limits).sleep_on(changed_, lock,
                                [this, ticket] { return current_ == ticket; });
  } catch (...) {
    give_up(ticket);
    throw;
  }
  if (end == WaitEnd::None) {
    --attention_;
    return;
  }
  give_up(ticket);
  if (end == WaitEnd::Stopped)
    throw Error(ErrorKind::Backend, "the group was closed before the operation began");
  throw Error(ErrorKind::Timeout,
              "timed out: an operation issued earlier on the same group did not finish "
              "in time");
}

WaitEnd Turns::wait_until_idle(const Limits& limits) {
  std::unique_lock lock(mutex_);
  const Counted waiting(attention_);
  return Wait(limits).sleep_on(changed_, lock,
                               [this] { return current_.load() == next_.load(); });
}

void Turns::call_next() {
  const std::lock_guard lock(mutex_);
  skip_given_up();
}

void Turns::give_up(Ticket ticket) {
  given_up_.insert(ticket);  // still counts
  skip_given_up();
}

// Skips given-up tickets. If an operation has its turn now, its ticket was not given
// up, so nothing is skipped.
void Turns::skip_given_up() {
  while (given_up_.erase(current_) != 0) {
    --attention_;
    ++current_;
  }
  changed_.notify_all();
}

}  // namespace allhands
