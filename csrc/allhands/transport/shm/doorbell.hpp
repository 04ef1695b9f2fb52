// Rung for a rank when something may have changed for it: a record for it to read, room
// for it to write, a rank that came or left. One per rank, in shared memory.
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
  Pulse pulse;                             // of the rank, kept by its waiters
  std::atomic<std::uint32_t> num_writers;  // ranks that have taken a ring to it

  void ring();
};

}  // namespace allhands
