// The last operations of one kind in a group, each in one cache line, of which a slot
// says what it is, when it came to pass and how it stands.
//
// Neither writing nor reading takes a lock or memory. One thread writes a slot at a
// time: whoever has begun the record, until it has ended it. A slot whose record has
// not ended is never written over, so what a program waits in is always there. Readers
// copy a slot and look at its mark before and after: what changed meanwhile they read
// again.
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

// How a recorded operation stands.
enum class FlightState : std::uint8_t {
  None,
  Writing,
  Scheduled,
  Started,
  Completed,
  Failed
};

// What an operation is, as far as its record goes.
struct FlightFacts {
  std::uint8_t op = 0;  // whatever number its writer has for it
  DType dtype = DType::UInt8;
  ReduceOp reduce_op = ReduceOp::Sum;
  bool is_async = false;
  std::int32_t partner = -1;  // root or peer, a rank of the group; -1: none, or any
  std::uint64_t count = 0;    // elements
  std::int64_t tag = 0;       // of a message
};

// A record as readers get it.
struct FlightRecord {
  std::uint64_t number = 0;  // within its ring, from 1
  FlightState state = FlightState::None;
  FlightFacts facts;
  Ticks issued = 0, started = 0, ended = 0;  // 0: not yet, or not known
  std::uint64_t thread = 0;                  // pthread_self() of who issued it
};

// Where a ring has one record.
class FlightSlot {
 public:
  // Ends its record; by who began it, or whom that one left it to.
  void end(bool is_success) {
    word(kEnded).store(ticks_now(), std::memory_order_relaxed);
    set_state(is_success ? FlightState::Completed : FlightState::Failed);
  }
  // The same of a blocking call that succeeded. The time is left out of it where to
  // read the clock would take a while, measured by what the call takes.
  void return_from() {
    constexpr std::uint64_t kTimed = 1024;  // elements: some microseconds
    if (word(kCount).load(std::memory_order_relaxed) >= kTimed)
      end(true);
    else
      set_state(FlightState::Completed);
  }
  // Whether it has the record that it had when its number was this, not ended yet.
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

// The last operations of one kind in a group.
class FlightRing {
 public:
  // Room for `size` records, rounded up to a power of two, in the memory of `row`,
  // which outlives it, as its ring `index`. It is taken with the first record, and page
  // by page as slots are used. Where there is none, or `size` is 0, nothing is
  // recorded.
  FlightRing(std::size_t size, FlightRow& row, int index);
  FlightRing(const FlightRing&) = delete;
  FlightRing& operator=(const FlightRing&) = delete;
  ~FlightRing();

  // A record that has started, number `number`; nobody else begins one meanwhile.
  // `issued` is the time when the operation was issued; 0: now. Null: nothing is
  // recorded. A record that is under way in the number's slot is left there, and
  // returned.
  FlightSlot* begin(std::uint64_t number, const FlightFacts& facts, Ticks issued = 0);
  // The same of any threads, with the ring's next number. Null also where too many
  // records have not ended yet.
  FlightSlot* begin_next(const FlightFacts& facts);

  // How many slots a ring for `size` records has.
  static std::size_t num_slots(std::size_t size);

  // Those that are there, in no order.
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
  FlightRow::Slots taken_;                    // of whoever has set slots_
};

// Ends a record as failed when it goes out of scope, unless that was said before. In a
// forked child it ends nothing: the operation is the parent's, and goes on there.
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
  // Of an asynchronous one.
  void succeed() {
    if (slot_ != nullptr) std::exchange(slot_, nullptr)->end(true);
  }
  // It goes on.
  void release() { slot_ = nullptr; }

 private:
  FlightSlot* slot_;
  const ForkMark process_;
};

}  // namespace allhands
