#include "allhands/base/ticks.hpp"

namespace allhands {
namespace {

template <class Clock>
std::int64_t now_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Clock::now().time_since_epoch())
      .count();
}

}  // namespace

TickTimes::TickTimes(const TickTimes* since)
    : ticks_(ticks_now()),
      steady_(now_of<std::chrono::steady_clock>()),
      wall_(now_of<std::chrono::system_clock>()) {
  if (since != nullptr && ticks_ > since->ticks_)
    nanoseconds_ = static_cast<double>(steady_ - since->steady_) /
                   static_cast<double>(ticks_ - since->ticks_);
}

std::int64_t TickTimes::wall_time(Ticks ticks) const {
  if (ticks == 0) return 0;
  const auto later = static_cast<std::int64_t>(ticks - ticks_);  // usually negative
  return wall_ + static_cast<std::int64_t>(static_cast<double>(later) * nanoseconds_);
}

}  // namespace allhands
