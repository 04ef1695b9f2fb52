// The part of a group's segment that messages go through: a doorbell for each rank, and
// for each ordered pair of ranks a ring of records and the slices of a large message.
// These take memory only once they are used; together they are bounded.
//
//   [Moves][Doorbell of rank 0]...[Doorbell of rank n-1]
//   [slices, ring 0 -> 0]...[slices, ring n-1 -> n-1]
#pragma once

#include <cstddef>

#include "allhands/host/placement.hpp"
#include "allhands/transport/shm/doorbell.hpp"
#include "allhands/transport/shm/ring.hpp"
#include "allhands/transport/shm/slices.hpp"

namespace allhands {

class MessageMemory {
 public:
  explicit MessageMemory(int size);

  std::size_t total_bytes() const;
  // Data bytes of a ring.
  std::size_t capacity() const { return capacity_; }

  Moves& moves(std::byte* base) const;
  Doorbell& doorbell(std::byte* base, int rank) const;
  std::byte* ring(std::byte* base, int from, int to) const;
  Slices slices(std::byte* base, int from, int to) const;

 private:
  std::size_t pair_bytes() const {
    return sizeof(Slices::Control) + RingControl::memory_bytes(capacity_);
  }
  std::byte* pair(std::byte* base, int from, int to) const;

  std::size_t size_;
  std::size_t capacity_;
};

}  // namespace allhands
