// The doorbell of a rank, in shared memory. It is rung when something may have changed
// for the rank: a record to read, room to write, a rank that came or left.
#pragma once

#include <atomic>
#include <cstdint>

#include "allhands/host/placement.hpp"
#include "allhands/host/pulse.hpp"

namespace allhands {

struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> count;        // futex word
  std::atomic<std::uint32_t> waiters;      // threads asleep on it
  std::atomic<std::uint32_t> is_here;      // the rank has mapped the segment
  std::atomic<std::uint32_t> presence;     // a Presence
  Seat seat;                               // see Placement
  Pulse pulse;                             // the rank's own; its waiters keep it going
  std::atomic<std::uint32_t> num_writers;  // ranks that have taken a ring to this rank

  void ring();
};

}  // namespace allhands
