// How the shared memory of one arena is laid out. Ranks are the arena's own.
//
//   [Header][RankControl 0]...[RankControl n-1][slots of rank 0]...[slots of rank n-1]
//
// Every rank reads all of it. Each rank writes only its own RankControl and slots, with
// three exceptions: the failure in the Header, once; in an all_reduce of two ranks, its
// results in the other's slots; and its senders' Handovers, for what it receives.
// Everything except the tuning and a known place is zero at first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allhands/arena/descriptor.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/factor.hpp"
#include "allhands/host/place.hpp"
#include "allhands/host/placement.hpp"
#include "allhands/host/pulse.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/shm/slices.hpp"

namespace allhands {

// This many bytes, at most, travel in the cache line that announces them.
inline constexpr std::size_t kInlineBytes = 32;

// How far a rank has come, for those who wait for it.
struct Signal {
  std::atomic<std::uint32_t> clock;    // futex word; see Arena
  std::atomic<std::uint32_t> waiters;  // threads asleep on `clock`

  // Clocks wrap around; no rank is ever 2^31 publications ahead of another.
  bool has_reached(std::uint32_t target) const {
    const std::uint32_t now = clock.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(now - target) >= 0;
  }
};

// What a rank last published, in one of two that operations use in turn. It is one
// cache line, so a peer that sees the clock move gets the descriptor and a small
// payload with the same cache miss.
struct alignas(64) Line : Signal {
  Descriptor descriptor;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Line) == 64);

// What a rank tells the one above it in a MeetingTree: those below have published.
struct alignas(64) Gathered : Signal {
  std::uint64_t is_different;  // two of them have entered different operations
};

// What it tells those below it: all ranks have published.
struct alignas(64) Released : Signal {
  std::uint64_t is_different;
  std::byte payload[kInlineBytes];  // a result for all
};

// What a rank sends in the current operation, while both it and its receiver copy; see
// CooperativeReceives. Written by both.
struct Handover {
  Slices::Control slices;
  std::uint64_t address;  // where it goes, in the receiver's memory
  std::uint64_t check;    // detects an overwritten address
};

// What a rank tells the others.
struct alignas(64) RankControl {
  static constexpr int kNumSignals = 4;

  // The signals for which others wait, by number.
  Signal& signal(int number) {
    if (number < 2) return lines[number];
    return number == 2 ? static_cast<Signal&>(gathered) : released;
  }

  Line lines[2];                       // used in turn by operations
  Factor factors[2];                   // PREMUL_SUM's factor of this rank, likewise
  std::atomic<std::uint64_t> entered;  // sequence number << 8 | Op, for error messages
  std::atomic<std::uint64_t> awaits;   // a signal, while it sleeps; see Awaited
  std::atomic<std::uint32_t> has_left;
  std::atomic<std::uint32_t> reads_peers;  // see Arena::can_read_peers
  std::uint64_t probe_address;             // in the rank's own memory
  std::uint64_t probe;                     // what is there
  Seat seat;                               // see Placement
  Pulse pulse;                             // of the rank, kept by its waiters
  std::atomic<std::uint32_t> place;        // socket << 16 | cache; see Place
  Gathered gathered;
  Released released;
  Handover handover;
};

// What broke the group, told by the first of the arena's ranks that noticed. Ranks are
// the group's.
struct SharedFailure {
  static constexpr std::uint32_t kNone = 0, kWriting = 1, kComplete = 2;
  static constexpr std::size_t kMaxRanks = 1 << 16, kMaxText = 2048;

  std::atomic<std::uint32_t> state;
  ErrorKind kind;
  std::int32_t reporter;
  std::uint64_t ranks[kMaxRanks / 64];  // a bit for each
  char text[kMaxText];
  std::int32_t cause_rank;
  char cause[RemoteException::kMaxBytes];  // empty: none is known
};

// What the whole segment has once.
struct alignas(64) Header {
  Tuning tuning;           // of the rank that made the segment; all ranks have the same
  KnownPlace known_place;  // of many ranks, the place of that rank
  SharedFailure failure;
  Moves moves;  // see Placement
  // One more than the rank that hands the segment out; 0: unknown.
  std::atomic<std::int32_t> maker;
};

// Where things are, for an arena of `size` ranks.
class Layout {
 public:
  explicit Layout(int size);

  int size() const { return size_; }
  // The chunk size of `tuning`, if a slot can hold such a chunk and the chunk can hold
  // a part for every rank.
  std::size_t chunk_bytes(const Tuning& tuning) const;
  std::size_t total_bytes() const;

  Header& header(std::byte* base) const;
  RankControl& control(std::byte* base, int rank) const;
  std::byte* slot(std::byte* base, int rank, std::uint64_t chunk) const;

 private:
  int size_;
  std::size_t slot_bytes_;  // per rank and parity of the chunk; a multiple of 64
  std::size_t slots_at_;
};

}  // namespace allhands
