#include "allhands/arena/layout.hpp"

#include <algorithm>

#include "allhands/base/round_up.hpp"

namespace allhands {
namespace {

constexpr std::size_t kPage = 4096;

// A slot holds one chunk, of Tuning::chunk_bytes at most. The total is bounded, so that
// a group of many ranks takes no more than 64 MiB.
constexpr std::size_t kMaxSlot = std::size_t{1} << 20;
constexpr std::size_t kMaxTotal = std::size_t{64} << 20;

// The smallest slot: it must hold a part of a few cache lines for every rank.
constexpr std::size_t kMinSlot = std::size_t{64} << 10;
constexpr std::size_t kMinPart = 256;

std::size_t least_chunk(std::size_t size) { return round_up(size * kMinPart, kPage); }

std::size_t slot_bytes_of(std::size_t size) {
  const std::size_t least = std::max(kMinSlot, least_chunk(size));
  return std::clamp(kMaxTotal / 2 / size / kPage * kPage, least,
                    std::max(least, kMaxSlot));
}

}  // namespace

Layout::Layout(int size)
    : size_(size),
      slot_bytes_(slot_bytes_of(static_cast<std::size_t>(size))),
      slots_at_(round_up(
          sizeof(Header) + static_cast<std::size_t>(size) * sizeof(RankControl),
          kPage)) {}

std::size_t Layout::total_bytes() const {
  return slots_at_ + 2 * static_cast<std::size_t>(size_) * slot_bytes_;
}

std::size_t Layout::chunk_bytes(const Tuning& tuning) const {
  return std::clamp(static_cast<std::size_t>(tuning.chunk_bytes) / kPage * kPage,
                    least_chunk(static_cast<std::size_t>(size_)), slot_bytes_);
}

Header& Layout::header(std::byte* base) const {
  return *reinterpret_cast<Header*>(base);
}

RankControl& Layout::control(std::byte* base, int rank) const {
  return reinterpret_cast<RankControl*>(base + sizeof(Header))[rank];
}

std::byte* Layout::slot(std::byte* base, int rank, std::uint64_t chunk) const {
  const std::size_t index = 2 * static_cast<std::size_t>(rank) + (chunk & 1);
  return base + slots_at_ + index * slot_bytes_;
}

}  // namespace allhands
