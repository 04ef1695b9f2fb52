// The part of a group's segment that point-to-point messages go through: a bell for
// each rank, and for each ordered pair of ranks the slices of the large message that is
// handed over, and a ring. These take memory only once they are used; together they are
// bounded.
//
//   [Lobby][Bell of rank 0]...[Bell of rank n-1]
//   [slices, ring 0 -> 0]...[slices, ring n-1 -> n-1]
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allhands/base/placement.hpp"
#include "allhands/transport/shm/ring.hpp"
#include "allhands/transport/shm/slices.hpp"

namespace allhands {

enum Leaving : std::uint32_t { kHere, kLeft, kAborted };

// Rung for a rank when something may have changed for it: a record for it to read, or
// room for it to write.
struct alignas(64) Bell {
  std::atomic<std::uint32_t> count;     // futex word
  std::atomic<std::uint32_t> waiters;   // threads asleep on it
  std::atomic<std::uint32_t> is_here;   // the rank has mapped the segment
  std::atomic<std::uint32_t> has_left;  // a Leaving
  Seat seat;                            // see Placement

  void ring();
};

// What belongs to no rank.
struct alignas(64) Lobby {
  Moves moves;  // see Placement
};

class Mailroom {
 public:
  explicit Mailroom(int size);

  std::size_t total_bytes() const;

  Lobby& lobby(std::byte* base) const;
  Bell& bell(std::byte* base, int rank) const;
  Ring ring(std::byte* base, int from, int to) const;
  Slices slices(std::byte* base, int from, int to) const;

 private:
  std::size_t pair_bytes() const {
    return sizeof(Slices::Control) + Ring::memory_bytes(capacity_);
  }
  std::byte* pair(std::byte* base, int from, int to) const;

  std::size_t size_;
  std::size_t capacity_;
};

}  // namespace allhands
