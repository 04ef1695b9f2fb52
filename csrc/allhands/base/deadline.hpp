// A point in time after which a wait gives up. It is made once, where a call enters the
// core, and passed down; nothing below uses relative timeouts.
#pragma once

#include <chrono>

namespace allhands {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::nanoseconds;

  // `limit` counts from now; beyond a century it means never.
  static Deadline after(Duration limit) {
    const Deadline deadline(limit);
    deadline.look();
    return deadline;
  }
  // `limit` counts from the first question to this object, so a call that never has to
  // wait never reads the clock. For one thread.
  static Deadline after_first_look(Duration limit) { return Deadline(limit); }
  static Deadline never() { return Deadline(Duration::max()); }

  bool is_expired() const { return remaining() == Duration::zero(); }
  Duration remaining() const {
    const Clock::time_point now = look();
    const Duration left = at_ - now;
    return left > Duration::zero() ? left : Duration::zero();
  }
  Duration elapsed() const {
    const Clock::time_point now = look();
    return now - start_;
  }
  Duration limit() const { return limit_; }
  // The same limit, moved `by` later. For a wait for another rank that has the same
  // limit and knows better what is missing.
  Deadline put_off(Duration by) const {
    look();
    Deadline later = *this;
    if (!is_never()) later.at_ += by;
    return later;
  }
  bool is_never() const { return limit_ > kForever; }

 private:
  explicit Deadline(Duration limit) : limit_(limit) {}

  // The time now. The first call sets the start.
  Clock::time_point look() const {
    const Clock::time_point now = Clock::now();
    if (start_ == Clock::time_point()) {
      start_ = now;
      at_ = is_never() ? Clock::time_point::max() : now + limit_;
    }
    return now;
  }

  static constexpr Duration kForever = std::chrono::hours(24 * 365 * 100);
  Duration limit_;
  mutable Clock::time_point start_;  // the clock's epoch: not started
  mutable Clock::time_point at_;
};

}  // namespace allhands
