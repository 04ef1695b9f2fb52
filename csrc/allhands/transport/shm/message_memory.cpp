#include "allhands/transport/shm/message_memory.hpp"

#include <algorithm>
#include <bit>

namespace allhands {
namespace {

// 256 KiB hold a few chunks of a large message, enough to keep both sides copying; many
// ranks get smaller rings, so that all of them together stay below 64 MiB up to 64
// ranks.
constexpr std::size_t kMaxCapacity = std::size_t{256} << 10;
constexpr std::size_t kMinCapacity = std::size_t{16} << 10;
constexpr std::size_t kMaxTotal = std::size_t{64} << 20;

struct alignas(64) MovesLine {
  Moves moves;
};

}  // namespace

MessageMemory::MessageMemory(int size)
    : size_(static_cast<std::size_t>(size)),
      capacity_(std::clamp(std::bit_floor(kMaxTotal / (size_ * size_)), kMinCapacity,
                           kMaxCapacity)) {}

std::size_t MessageMemory::total_bytes() const {
  return sizeof(MovesLine) + size_ * sizeof(Doorbell) + size_ * size_ * pair_bytes();
}

Moves& MessageMemory::moves(std::byte* base) const {
  return reinterpret_cast<MovesLine*>(base)->moves;
}

Doorbell& MessageMemory::doorbell(std::byte* base, int rank) const {
  return reinterpret_cast<Doorbell*>(base + sizeof(MovesLine))[rank];
}

std::byte* MessageMemory::pair(std::byte* base, int from, int to) const {
  const std::size_t index =
      static_cast<std::size_t>(from) * size_ + static_cast<std::size_t>(to);
  return base + sizeof(MovesLine) + size_ * sizeof(Doorbell) + index * pair_bytes();
}

Slices MessageMemory::slices(std::byte* base, int from, int to) const {
  return Slices(pair(base, from, to));
}

std::byte* MessageMemory::ring(std::byte* base, int from, int to) const {
  return pair(base, from, to) + sizeof(Slices::Control);
}

}  // namespace allhands
