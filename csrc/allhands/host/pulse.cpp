#include "allhands/host/pulse.hpp"

namespace allhands {
namespace {

// A waiting rank reads the clock once for all that it looks at, so others may be ahead.
constexpr std::chrono::seconds kAhead{1};

// Whether the last time is `pause` ago, or never was; then it is now. If several
// threads come at the same time, this is true for one of them. A time far in the future
// was written by mistake.
bool is_due(std::atomic<Pulse::Duration>& last, Pulse::Duration now,
            Pulse::Duration pause) {
  Pulse::Duration then = last.load(std::memory_order_relaxed);
  const bool is_known = then > Pulse::Duration::zero() && then <= now + kAhead;
  if (is_known && now - then < pause) return false;
  return last.compare_exchange_strong(then, now, std::memory_order_relaxed);
}

}  // namespace

bool is_alive(const ProcessIdentity& process, Pulse& pulse, Pulse::Duration now) {
  if (pulse.has_ended.load(std::memory_order_relaxed) == 0) {
    if (!is_due(pulse.asked_at, now, Pulse::kFresh)) return true;
    if (!is_due(pulse.known_at, now, Pulse::kPause) && has_readable_memory(process.pid))
      return true;
  }
  if (is_alive(process)) return true;
  pulse.has_ended.store(1, std::memory_order_relaxed);
  return false;
}

bool has_departed_lately(int rank, const HasDeparted& has_departed, Pulse& pulse,
                         Pulse::Duration now) {
  if (!has_departed) return false;
  Pulse::Duration never = Pulse::Duration::zero();
  if (pulse.looked_at.compare_exchange_strong(never, now, std::memory_order_relaxed))
    return false;
  return is_due(pulse.looked_at, now, Pulse::kPause) && has_departed(rank);
}

}  // namespace allhands
