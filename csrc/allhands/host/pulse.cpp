#include "allhands/host/pulse.hpp"

namespace allhands {

bool is_alive(const ProcessIdentity& process, Pulse& pulse) {
  const Pulse::Duration now = std::chrono::steady_clock::now().time_since_epoch();
  Pulse::Duration asked = pulse.asked_at.load(std::memory_order_relaxed);
  if (pulse.has_ended.load(std::memory_order_relaxed) == 0) {
    // If two threads come at the same time, one of them asks. A time in the future was
    // written by mistake.
    const bool is_past = asked > Pulse::Duration::zero() && asked <= now;
    if (is_past && now - asked < Pulse::kFresh) return true;
    if (!pulse.asked_at.compare_exchange_strong(asked, now, std::memory_order_relaxed))
      return true;
  }
  if (is_alive(process)) return true;
  pulse.has_ended.store(1, std::memory_order_relaxed);
  return false;
}

}  // namespace allhands
