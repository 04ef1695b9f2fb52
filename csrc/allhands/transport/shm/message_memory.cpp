#include "allhands/transport/shm/message_memory.hpp"

#include <algorithm>
#include <string>

#include "allhands/base/round_up.hpp"
#include "allhands/transport/link.hpp"

namespace allhands {
namespace {

// 256 KiB hold a few chunks of a large message, enough to keep both sides copying. 16
// KiB hold some small messages.
constexpr std::size_t kMost = std::size_t{256} << 10;
constexpr std::size_t kPlenty = std::size_t{16} << 10;
// The least data bytes of a ring: two records with the header of a message fit.
constexpr std::size_t kLeast = 256;
// The most bytes of all rings together, as long as the ring of every pair can have
// kPlenty.
// With more ranks, half of it is for large rings, or less if the small rings need more.
constexpr std::size_t kMostTotal = std::size_t{64} << 20;
constexpr std::size_t kLargeTotal = std::size_t{24} << 20;
// The number of peers per rank for which there should be large rings.
constexpr std::size_t kPeers = 12;

[[noreturn]] void throw_overwritten() {
  throw LinkError(
      "the list of rings of messages in shared memory has been written over by "
      "something else");
}

}  // namespace

MessageMemory::MessageMemory(int size)
    : size_(static_cast<std::size_t>(size)),
      num_large_(num_pairs()),
      large_(std::min(std::bit_floor(kMostTotal / num_pairs()), kMost)),
      small_(large_) {
  if (large_ >= kPlenty) return;
  const std::size_t per_pair = kMostTotal / 2 / num_pairs();
  small_ = std::max(
      std::bit_floor(per_pair > kControl ? per_pair - kControl : std::size_t{1}),
      kLeast);
  const std::size_t small_total = num_pairs() * (kControl + small_);
  const std::size_t rest =
      small_total + kLargeTotal < kMostTotal ? kMostTotal - small_total : kLargeTotal;
  large_ = kPlenty;
  while (large_ > 2 * small_ && rest / (large_ - small_) < kPeers * size_) large_ /= 2;
  num_large_ = std::min(rest / (large_ - small_), num_pairs());
}

std::size_t MessageMemory::sleepers_at() const {
  return sizeof(Head) + size_ * sizeof(Doorbell);
}

std::size_t MessageMemory::entries_at() const {
  return sleepers_at() + round_up(size_, kBits) / kBits * sizeof(Word);
}

std::size_t MessageMemory::rings_at() const {
  return round_up(entries_at() + num_pairs() * sizeof(Entry), sizeof(Head));
}

std::size_t MessageMemory::total_bytes() const {
  return rings_at() + num_pairs() * (kControl + small_) +
         num_large_ * (large_ - small_);
}

MessageMemory::Head& MessageMemory::head(std::byte* base) const {
  return *reinterpret_cast<Head*>(base);
}

Doorbell& MessageMemory::doorbell(std::byte* base, int rank) const {
  return reinterpret_cast<Doorbell*>(base + sizeof(Head))[rank];
}

MessageMemory::Entry& MessageMemory::entry(std::byte* base, int from, int to) const {
  return reinterpret_cast<Entry*>(base +
                                  entries_at())[static_cast<std::size_t>(to) * size_ +
                                                static_cast<std::size_t>(from)];
}

// Identifies the pair; never 0.
std::uint32_t MessageMemory::owner(int from, int to) const {
  return static_cast<std::uint32_t>(static_cast<std::size_t>(from) * size_ +
                                    static_cast<std::size_t>(to) + 1);
}

RingPlace MessageMemory::place(std::byte* base, std::size_t number) const {
  const std::size_t num_large = std::min(number, num_large_);
  std::byte* const at = base + rings_at() + num_large * (kControl + large_) +
                        (number - num_large) * (kControl + small_);
  return {at, at + sizeof(Slices::Control), number < num_large_ ? large_ : small_};
}

RingPlace MessageMemory::take_ring(std::byte* base, int from, int to) const {
  const std::uint32_t number =
      head(base).num_rings.fetch_add(1, std::memory_order_relaxed);
  if (number >= num_pairs()) throw_overwritten();
  const RingPlace taken = place(base, number);
  std::uint32_t nobody = 0;
  if (!reinterpret_cast<RingControl*>(taken.ring)
           ->owner.compare_exchange_strong(nobody, owner(from, to)))
    throw_overwritten();
  entry(base, from, to).store(number + 1, std::memory_order_release);
  doorbell(base, to).num_writers.fetch_add(1, std::memory_order_release);
  return taken;
}

bool MessageMemory::has_written(std::byte* base, int from, int to) const {
  const std::uint32_t entered = entry(base, from, to).load(std::memory_order_acquire);
  if (entered == 0 || entered > num_pairs()) return entered != 0;
  const RingPlace found = place(base, entered - 1);
  return reinterpret_cast<RingControl*>(found.ring)->written.load() != 0;
}

RingPlace MessageMemory::ring(std::byte* base, int from, int to) const {
  const std::uint32_t entered = entry(base, from, to).load(std::memory_order_acquire);
  if (entered == 0 || entered > num_pairs()) throw_overwritten();
  const RingPlace found = place(base, entered - 1);
  if (reinterpret_cast<RingControl*>(found.ring)->owner.load() != owner(from, to))
    throw_overwritten();
  return found;
}

}  // namespace allhands
