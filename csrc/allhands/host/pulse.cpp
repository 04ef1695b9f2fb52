#include "allhands/host/pulse.hpp"

namespace allhands {
namespace {

// Whether the last time is `pause` ago, or never was; then it is now. If several
// threads come at the same time, this is true for one of them. A time in the future was
// written by mistake.
bool is_due(std::atomic<Pulse::Duration>& last, Pulse::Duration pause) {
  const Pulse::Duration now = std::chrono::steady_clock::now().time_since_epoch();
  Pulse::Duration then = last.load(std::memory_order_relaxed);
  const bool is_past = then > Pulse::Duration::zero() && then <= now;
  if (is_past && now - then < pause) return false;
  return last.compare_exchange_strong(then, now, std::memory_order_relaxed);
}

}  // namespace

bool is_alive(const ProcessIdentity& process, Pulse& pulse) {
  if (pulse.has_ended.load(std::memory_order_relaxed) == 0 &&
      !is_due(pulse.asked_at, Pulse::kFresh))
    return true;
  if (is_alive(process)) return true;
  pulse.has_ended.store(1, std::memory_order_relaxed);
  return false;
}

bool has_departed_lately(int rank, const HasDeparted& has_departed, Pulse& pulse) {
  return has_departed && is_due(pulse.looked_at, Pulse::kPause) && has_departed(rank);
}

}  // namespace allhands
