#include "allhands/transport/shm/slices.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "allhands/base/deadline.hpp"
#include "allhands/transport/link.hpp"

namespace allhands {
namespace {

// How long a receiver that gives up waits for the slice that its sender is writing.
// Writing takes microseconds of CPU time, and longer only if the sender's process is
// stopped.
constexpr std::chrono::seconds kPatience{1};
// A process counts as dead once its first thread is dead; another thread may still
// write.
constexpr std::chrono::milliseconds kPatienceWithTheDead{20};

// [number: 32][high: 16][low: 16]
constexpr std::uint64_t kHigh = 1 << 16, kLow = 1;

constexpr std::uint32_t number_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}
constexpr std::uint32_t high_of(std::uint64_t word) { return word >> 16 & 0xffff; }
constexpr std::uint32_t low_of(std::uint64_t word) { return word & 0xffff; }
constexpr std::uint32_t sum_of(std::uint64_t word) {
  return high_of(word) + low_of(word);
}
constexpr std::uint64_t word_of(std::uint32_t number) {
  return std::uint64_t{number} << 32;
}

// Adds `step` if the word belongs to message `number` and its sum is below `limit`.
// Returns the word from before, or none.
std::optional<std::uint64_t> add(std::atomic<std::uint64_t>& word, std::uint32_t number,
                                 std::uint32_t limit, std::uint64_t step) {
  std::uint64_t seen = word.load(std::memory_order_acquire);
  do {
    if (number_of(seen) != number || sum_of(seen) >= limit) return std::nullopt;
  } while (!word.compare_exchange_weak(seen, seen + step, std::memory_order_acq_rel,
                                       std::memory_order_acquire));
  return seen;
}

}  // namespace

void Slices::open(std::uint32_t number, std::uint32_t count) {
  number_ = number;
  count_ = count;
  num_taken_ = 0;
  control_->ended.store(word_of(number), std::memory_order_relaxed);
  control_->taken.store(word_of(number), std::memory_order_release);
}

// Returns the word `taken`, after checking the parts that only this side writes.
std::uint64_t Slices::taken() const {
  const std::uint64_t word = control_->taken.load(std::memory_order_relaxed);
  if (number_of(word) != number_ || sum_of(word) > count_ ||
      high_of(word) != num_taken_)
    throw LinkError(
        "the slices of a large message in shared memory have been written "
        "over by something else");
  return word;
}

bool Slices::has_untaken() const {
  return sum_of(control_->taken.load(std::memory_order_relaxed)) < count_;
}

bool Slices::is_complete() const {
  return sum_of(taken()) == count_ && !is_sender_busy();
}

std::optional<std::uint32_t> Slices::take_first() {
  const auto before = add(control_->taken, number_, count_, kHigh);
  if (before) ++num_taken_;
  taken();  // throws, unless no slice is left
  if (!before) return std::nullopt;
  return high_of(*before);
}

std::optional<std::uint32_t> Slices::take_last(std::uint32_t number,
                                               std::uint32_t count) {
  const auto before = add(control_->taken, number, count, kLow);
  if (!before) return std::nullopt;
  return count - 1 - low_of(*before);
}

void Slices::put_back(std::uint32_t number, bool is_written) {
  add(control_->ended, number, kMost + 1, is_written ? kLow : kHigh);
}

bool Slices::is_sender_busy() const {
  const std::uint64_t ended = control_->ended.load(std::memory_order_acquire);
  return sum_of(ended) < low_of(control_->taken.load(std::memory_order_relaxed));
}

std::optional<std::uint32_t> Slices::failed() const {
  if (high_of(control_->ended.load(std::memory_order_acquire)) == 0)
    return std::nullopt;
  const std::uint32_t num_senders = low_of(taken());
  if (num_senders == 0) return std::nullopt;
  return count_ - num_senders;
}

void Slices::close() {
  const std::uint64_t all = std::uint64_t{count_} * kHigh;
  std::uint64_t seen = control_->taken.load(std::memory_order_relaxed);
  // Makes the word what it would be if the receiver had taken all the other slices.
  while (!control_->taken.compare_exchange_weak(
      seen, word_of(number_) + all - low_of(seen) * kHigh + low_of(seen),
      std::memory_order_acq_rel)) {
  }
}

void Slices::wait_for_sender(const std::function<bool()>& is_alive) const {
  const Deadline patience = Deadline::after(kPatience);
  while (is_sender_busy() && is_alive() && !patience.is_expired())
    std::this_thread::yield();
  const Deadline last = Deadline::after(
      std::min<Deadline::Duration>(kPatienceWithTheDead, patience.remaining()));
  while (is_sender_busy() && !last.is_expired()) std::this_thread::yield();
}

void Slices::withdraw() {
  control_->withdrawn.fetch_add(1, std::memory_order_seq_cst);
  // only then may the array change
  control_->withdrawn.load(std::memory_order_seq_cst);
}

std::uint32_t Slices::withdrawn() const {
  // A write, so that the copies come before it in memory order.
  return control_->withdrawn.fetch_add(0, std::memory_order_acq_rel);
}

}  // namespace allhands
