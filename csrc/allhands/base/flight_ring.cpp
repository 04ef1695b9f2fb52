#include "allhands/base/flight_ring.hpp"

#include <pthread.h>

#include <bit>

namespace allhands {
namespace {

// The most unfinished records that are skipped to find a free slot.
constexpr int kMostPassed = 8;
constexpr int kMostReads = 64;

std::uint64_t packed(const FlightFacts& facts) {
  return std::uint64_t{static_cast<std::uint32_t>(facts.partner)} << 32 |
         std::uint64_t{facts.is_async} << 24 |
         std::uint64_t{static_cast<std::uint8_t>(facts.reduce_op)} << 16 |
         std::uint64_t{static_cast<std::uint8_t>(facts.dtype)} << 8 | facts.op;
}

std::uint64_t bytes_of(const FlightFacts& facts) {
  return facts.count * size_of(facts.dtype);
}

}  // namespace

void FlightSlot::fill(std::uint64_t number, const FlightFacts& facts, Ticks issued,
                      Ticks started) {
  constexpr auto relaxed = std::memory_order_relaxed;
  word(kMark).store(mark_of(number, FlightState::Writing), relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  word(kIssued).store(issued, relaxed);
  word(kStarted).store(started, relaxed);
  word(kEnded).store(0, relaxed);
  word(kThread).store(static_cast<std::uint64_t>(pthread_self()), relaxed);
  word(kWhat).store(packed(facts), relaxed);
  word(kCount).store(facts.count, relaxed);
  word(kTag).store(static_cast<std::uint64_t>(facts.tag), relaxed);
  word(kMark).store(mark_of(number, FlightState::Started), std::memory_order_release);
}

// Returns nothing if the slot has never been used, or was being written all the time.
std::optional<FlightRecord> FlightSlot::read() {
  for (int i = 0; i < kMostReads; ++i) {
    const std::uint64_t before = mark();
    if (before == 0) return std::nullopt;
    std::uint64_t copy[kWords];
    for (int w = kMark + 1; w < kWords; ++w)
      copy[w] = word(w).load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    const FlightState state = state_in(before);
    if (state == FlightState::Writing || mark() != before) continue;
    const std::uint64_t what = copy[kWhat];
    const bool has_ended = state >= FlightState::Completed;
    return FlightRecord{.number = number_in(before),
                        .state = state,
                        .facts = {.op = static_cast<std::uint8_t>(what),
                                  .dtype = static_cast<DType>(what >> 8 & 0xff),
                                  .reduce_op = static_cast<ReduceOp>(what >> 16 & 0xff),
                                  .is_async = (what >> 24 & 1) != 0,
                                  .partner = static_cast<std::int32_t>(what >> 32),
                                  .count = copy[kCount],
                                  .tag = static_cast<std::int64_t>(copy[kTag])},
                        .issued = copy[kIssued],
                        .started = copy[kStarted],
                        .ended = has_ended ? copy[kEnded] : 0,
                        .thread = copy[kThread]};
  }
  return std::nullopt;
}

FlightRing::FlightRing(std::size_t size, FlightRow& row, int index)
    : size_(num_slots(size)), row_(row), index_(index), head_(row.head(index)) {}

std::size_t FlightRing::num_slots(std::size_t size) {
  return size == 0 ? 0 : std::bit_ceil(size);
}

FlightRing::~FlightRing() {
  if (slots_.load() != nullptr) row_.give_back(taken_, size_ * sizeof(FlightSlot));
}

// The memory is zero, and a page is allocated when it is first written. Null: there is
// no memory.
FlightSlot* FlightRing::allocate() {
  if (size_ == 0) return nullptr;
  const std::size_t num_bytes = size_ * sizeof(FlightSlot);
  const FlightRow::Slots taken = row_.take_slots(num_bytes);
  if (taken.memory == nullptr) return nullptr;
  auto* const made = static_cast<FlightSlot*>(taken.memory);
  FlightSlot* other = nullptr;
  if (!slots_.compare_exchange_strong(other, made)) {
    row_.give_back(taken, num_bytes);
    return other;
  }
  taken_ = taken;
  row_.publish(index_, taken);
  return made;
}

FlightSlot* FlightRing::begin(std::uint64_t number, const FlightFacts& facts,
                              Ticks issued) {
  FlightSlot* const all = slots();
  if (all == nullptr) return nullptr;
  FlightSlot& slot = all[index_of(number)];
  if (slot.is_under_way(number)) [[unlikely]]
    return &slot;
  // No other thread writes these meanwhile.
  constexpr auto relaxed = std::memory_order_relaxed;
  head_.last.store(number, relaxed);
  head_.num_bytes.store(head_.num_bytes.load(relaxed) + bytes_of(facts), relaxed);
  const Ticks now = ticks_now();
  slot.fill(number, facts, issued == 0 ? now : issued, now);
  return &slot;
}

// Takes the slot by one atomic exchange of its mark. `last` only says where to look
// first: a thread that was held up may set it back.
FlightSlot* FlightRing::begin_next(const FlightFacts& facts) {
  FlightSlot* const all = slots();
  if (all == nullptr) return nullptr;
  std::uint64_t number = head_.last.load(std::memory_order_relaxed) + 1;
  for (int num_passed = 0; num_passed < kMostPassed;) {
    FlightSlot& slot = all[index_of(number)];
    std::uint64_t mark = slot.mark();
    if (FlightSlot::number_in(mark) >= number) {
      number = FlightSlot::number_in(mark) + 1;
    } else if (FlightSlot::is_under_way_in(mark)) {
      ++number;
      ++num_passed;
    } else if (slot.word(FlightSlot::kMark)
                   .compare_exchange_strong(
                       mark, FlightSlot::mark_of(number, FlightState::Writing))) {
      head_.last.store(number, std::memory_order_relaxed);
      head_.num_bytes.fetch_add(bytes_of(facts), std::memory_order_relaxed);
      const Ticks now = ticks_now();
      slot.fill(number, facts, now, now);
      return &slot;
    }
  }
  return nullptr;
}

std::vector<FlightRecord> FlightRing::read() const {
  std::vector<FlightRecord> records;
  FlightSlot* const all = slots_.load(std::memory_order_acquire);
  if (all == nullptr) return records;
  for (std::size_t i = 0; i < size_; ++i)
    if (const auto record = all[i].read()) records.push_back(*record);
  return records;
}

}  // namespace allhands
