// A point in time after which a wait gives up. Made once, where a call enters the core,
// and passed down; never a relative timeout below that.
#pragma once

#include <chrono>

namespace allhands {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::nanoseconds;

  // `limit` counts from now; beyond a century it means never.
  static Deadline after(Duration limit) { return Deadline(Clock::now(), limit); }

  bool is_expired() const { return Clock::now() >= at_; }
  Duration remaining() const {
    const Duration left = at_ - Clock::now();
    return left > Duration::zero() ? left : Duration::zero();
  }
  Duration elapsed() const { return Clock::now() - start_; }
  Duration limit() const { return limit_; }

 private:
  Deadline(Clock::time_point start, Duration limit)
      : start_(start),
        limit_(limit),
        at_(limit > kForever ? Clock::time_point::max() : start + limit) {}

  static constexpr Duration kForever = std::chrono::hours(24 * 365 * 100);
  Clock::time_point start_;
  Duration limit_;
  Clock::time_point at_;
};

}  // namespace allhands
