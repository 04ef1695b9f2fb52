#include "allhands/transport/shm/mailroom.hpp"

#include <algorithm>
#include <bit>

#include "allhands/base/futex.hpp"

namespace allhands {
namespace {

// 256 KiB hold a few chunks of a large message, enough to keep both sides copying; many
// ranks get smaller rings, so that all of them together stay below 64 MiB up to 64
// ranks.
constexpr std::size_t kMaxCapacity = std::size_t{256} << 10;
constexpr std::size_t kMinCapacity = std::size_t{16} << 10;
constexpr std::size_t kMaxTotal = std::size_t{64} << 20;

}  // namespace

void Bell::ring() {
  // Sequentially consistent with the waiter's increment and re-read, as in Arena.
  count.fetch_add(1, std::memory_order_seq_cst);
  if (waiters.load(std::memory_order_seq_cst) != 0) futex_wake_all(count);
}

Mailroom::Mailroom(int size)
    : size_(static_cast<std::size_t>(size)),
      capacity_(std::clamp(std::bit_floor(kMaxTotal / (size_ * size_)), kMinCapacity,
                           kMaxCapacity)) {}

std::size_t Mailroom::total_bytes() const {
  return sizeof(Lobby) + size_ * sizeof(Bell) + size_ * size_ * pair_bytes();
}

Lobby& Mailroom::lobby(std::byte* base) const {
  return *reinterpret_cast<Lobby*>(base);
}

Bell& Mailroom::bell(std::byte* base, int rank) const {
  return reinterpret_cast<Bell*>(base + sizeof(Lobby))[rank];
}

std::byte* Mailroom::pair(std::byte* base, int from, int to) const {
  const std::size_t index =
      static_cast<std::size_t>(from) * size_ + static_cast<std::size_t>(to);
  return base + sizeof(Lobby) + size_ * sizeof(Bell) + index * pair_bytes();
}

Slices Mailroom::slices(std::byte* base, int from, int to) const {
  return Slices(pair(base, from, to));
}

Ring Mailroom::ring(std::byte* base, int from, int to) const {
  return Ring(pair(base, from, to) + sizeof(Slices::Control), capacity_);
}

}  // namespace allhands
