// The last operations of one kind in a group. Each has one slot, of one cache line,
// which says what the operation is, its times and its state.
//
// Neither writing nor reading takes a lock or allocates. One thread writes a slot at a
// time: the thread that began the record, until it has ended it. The slot of an
// unfinished record is never overwritten, so the operation that a program waits in can
// always be seen. Readers copy a slot, look at its mark before and after, and read
// again if it changed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "allhands/base/dtype.hpp"
#include "allhands/base/flight_row.hpp"
#include "allhands/base/fork_mark.hpp"
#include "allhands/base/reduce_op.hpp"
#include "allhands/base/ticks.hpp"

namespace allhands {

// The state of a recorded operation.
enum class FlightState : std::uint8_t {
  None,
  Writing,
  Scheduled,
  Started,
  Completed,
  Failed
};

// The part of an operation that its record holds.
struct FlightFacts {
  std::uint8_t op = 0;  // a number that the writer chooses
  DType dtype = DType::UInt8;
  ReduceOp reduce_op = ReduceOp::Sum;
  bool is_async = false;
  std::int32_t partner = -1;  // root or peer, as a rank of the group; -1: none, or any
  std::uint64_t count = 0;    // elements
  std::int64_t tag = 0;       // of a message
};

// A record as readers get it.
struct FlightRecord {
  std::uint64_t number = 0;  // within its ring, from 1
  FlightState state = FlightState::None;
  FlightFacts facts;
  Ticks issued = 0, started = 0, ended = 0;  // 0: not yet, or unknown
  // pthread_self() of the thread that issued it.
  std::uint64_t thread = 0;
};

// The place of one record in a ring.
class FlightSlot {
 public:
  // Ends its record. Call from the thread that began it, or that it was left to.
  void end(bool is_success) {
    word(kEnded).store(ticks_now(), std::memory_order_relaxed);
    set_state(is_success ? FlightState::Completed : FlightState::Failed);
  }
  // Does the same for a blocking call that succeeded. The time is left out if reading
  // the clock would take long compared with the call.
  void return_from() {
    constexpr std::uint64_t kTimed = 1024;  // elements: some microseconds
    if (word(kCount).load(std::memory_order_relaxed) >= kTimed)
      end(true);
    else
      set_state(FlightState::Completed);
  }
  // Whether the slot still has record `number`, not ended yet.
  bool is_under_way(std::uint64_t number) const {
    return mark() == mark_of(number, FlightState::Started);
  }
  std::uint64_t number() const { return number_in(mark()); }

 private:
  friend class FlightRing;
  enum Word { kMark, kIssued, kStarted, kEnded, kThread, kWhat, kCount, kTag, kWords };
  static constexpr int kStateBits = 3;

  std::atomic_ref<std::uint64_t> word(int i) {
    return std::atomic_ref<std::uint64_t>(words_[i]);
  }
  std::uint64_t mark() const {
    return std::atomic_ref(const_cast<std::uint64_t&>(words_[kMark]))
        .load(std::memory_order_acquire);
  }
  static std::uint64_t number_in(std::uint64_t mark) { return mark >> kStateBits; }
  static FlightState state_in(std::uint64_t mark) {
    return static_cast<FlightState>(mark & ((1u << kStateBits) - 1));
  }
  static bool is_under_way_in(std::uint64_t mark) {
    const FlightState state = state_in(mark);
    return state != FlightState::None && state < FlightState::Completed;
  }
  static std::uint64_t mark_of(std::uint64_t number, FlightState state) {
    return number << kStateBits | static_cast<std::uint64_t>(state);
  }
  void set_state(FlightState state) {
    word(kMark).store(mark_of(number(), state), std::memory_order_release);
  }
  void fill(std::uint64_t number, const FlightFacts& facts, Ticks issued,
            Ticks started);
  std::optional<FlightRecord> read();

  alignas(64) std::uint64_t words_[kWords];  // all zero: never used
};
static_assert(sizeof(FlightSlot) == 64, "one cache line");

// The ring of the last operations of one kind in a group.
class FlightRing {
 public:
  // Has room for `size` records, rounded up to a power of two, in the memory of `row`
  // as its ring `index`; `row` must outlive it. The memory is taken with the first
  // record, and page by page as slots are used. If there is no memory, or `size` is 0,
  // nothing is recorded.
  FlightRing(std::size_t size, FlightRow& row, int index);
  FlightRing(const FlightRing&) = delete;
  FlightRing& operator=(const FlightRing&) = delete;
  ~FlightRing();

  // Begins record `number`, which has started; no other thread may begin one meanwhile.
  // `issued` is the time when the operation was issued; 0: now. Returns null if nothing
  // is recorded. If the number's slot has an unfinished record, this leaves it there
  // and returns it.
  FlightSlot* begin(std::uint64_t number, const FlightFacts& facts, Ticks issued = 0);
  // Does the same with the ring's next number, from any threads. Also returns null if
  // too many records have not ended yet.
  FlightSlot* begin_next(const FlightFacts& facts);

  // The number of slots of a ring for `size` records.
  static std::size_t num_slots(std::size_t size);

  // The records, in no order.
  std::vector<FlightRecord> read() const;

 private:
  FlightSlot* slots() {
    FlightSlot* const slots = slots_.load(std::memory_order_acquire);
    return slots != nullptr ? slots : allocate();
  }
  FlightSlot* allocate();
  std::size_t index_of(std::uint64_t number) const { return number & (size_ - 1); }

  const std::size_t size_;
  FlightRow& row_;
  const int index_;
  FlightHead& head_;
  std::atomic<FlightSlot*> slots_ = nullptr;  // null: none yet
  FlightRow::Slots taken_;                    // by the thread that has set slots_
};

// Ends a record as failed when it goes out of scope, unless the record was ended
// before. In a forked child it does nothing: the operation is the parent's, and goes on
// there.
class FlightEnd {
 public:
  explicit FlightEnd(FlightSlot* slot) : slot_(slot) {}
  ~FlightEnd() {
    if (slot_ != nullptr && !process_.is_forked()) [[unlikely]]
      slot_->end(false);
  }
  FlightEnd(const FlightEnd&) = delete;
  FlightEnd& operator=(const FlightEnd&) = delete;
  // See FlightSlot::return_from.
  void return_from() {
    if (slot_ != nullptr) std::exchange(slot_, nullptr)->return_from();
  }
  // For an asynchronous operation.
  void succeed() {
    if (slot_ != nullptr) std::exchange(slot_, nullptr)->end(true);
  }
  // The operation goes on; leaves its record as it is.
  void release() { slot_ = nullptr; }

 private:
  FlightSlot* slot_;
  const ForkMark process_;
};

}  // namespace allhands
