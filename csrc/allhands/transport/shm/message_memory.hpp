// The part of a group's segment that messages go through: a doorbell for each rank, and
// a ring of records, with the slices of a large message, for each ordered pair of ranks
// that uses one.
//
//   [Head][Doorbell of rank 0]...[Doorbell of rank n-1][who sleeps: a bit per rank]
//   [rings to rank 0]...[rings to rank n-1]   by their writer: number + 1; 0: none yet
//   [ring 0, with its slices]...[ring n * n - 1]
//
// The writer takes the next ring when it first writes to a peer, and enters its number.
// There is a ring for every pair. If there are many ranks, only the rings that are
// taken first are large, so that their total size is bounded. A ring that has not been
// used takes no memory.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allhands/host/placement.hpp"
#include "allhands/transport/shm/doorbell.hpp"
#include "allhands/transport/shm/ring.hpp"
#include "allhands/transport/shm/slices.hpp"

namespace allhands {

// Where the ring of one pair is.
struct RingPlace {
  std::byte* slices;
  std::byte* ring;
  std::size_t capacity;  // in data bytes
};

// The part of a group's segment that messages go through.
class MessageMemory {
 public:
  using Entry = std::atomic<std::uint32_t>;
  using Word = std::atomic<std::uint64_t>;

  // What all ranks share.
  struct alignas(64) Head {
    Moves moves;
    std::atomic<std::uint32_t> num_rings;    // that were taken
    std::atomic<std::uint32_t> num_changes;  // of ranks that came or left
    std::atomic<std::uint32_t> num_aborted;
  };

  explicit MessageMemory(int size);

  std::size_t total_bytes() const;

  Head& head(std::byte* base) const;
  Doorbell& doorbell(std::byte* base, int rank) const;
  // The word with the rank's bit, which is set while the rank sleeps on its doorbell.
  Word& sleepers(std::byte* base, int rank) const {
    return sleepers(base)[static_cast<std::size_t>(rank) / kBits];
  }
  static std::uint64_t sleeper_bit(int rank) {
    return std::uint64_t{1} << (static_cast<std::size_t>(rank) % kBits);
  }
  template <class Body>
  void for_each_sleeper(std::byte* base, Body body) const {
    for (std::size_t first = 0; first < size_; first += kBits)
      for (std::uint64_t bits = sleepers(base)[first / kBits].load();
           bits != 0 && first + std::countr_zero(bits) < size_; bits &= bits - 1)
        body(static_cast<int>(first + std::countr_zero(bits)));
  }
  // The entry that says which ring `from` has taken to write to `to`.
  Entry& entry(std::byte* base, int from, int to) const;

  // Writer: takes a ring and enters its number. Throws LinkError, like ring().
  RingPlace take_ring(std::byte* base, int from, int to) const;
  // Whether the ring that was entered has a record, or something is wrong with it.
  bool has_written(std::byte* base, int from, int to) const;
  // The ring that was entered.
  RingPlace ring(std::byte* base, int from, int to) const;

 private:
  static constexpr std::size_t kBits = 64;
  static constexpr std::size_t kControl = sizeof(Slices::Control) + sizeof(RingControl);

  std::size_t num_pairs() const { return size_ * size_; }
  std::size_t sleepers_at() const;
  std::size_t entries_at() const;
  std::size_t rings_at() const;
  std::uint32_t owner(int from, int to) const;
  RingPlace place(std::byte* base, std::size_t number) const;
  Word* sleepers(std::byte* base) const {
    return reinterpret_cast<Word*>(base + sleepers_at());
  }

  std::size_t size_;
  // The first rings have `large_` bytes of data, the others `small_`.
  std::size_t num_large_;
  std::size_t large_;
  std::size_t small_;
};

}  // namespace allhands
