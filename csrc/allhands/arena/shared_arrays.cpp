#include "allhands/arena/shared_arrays.hpp"

#include <algorithm>
#include <functional>

namespace allhands {
namespace {

constexpr auto is_before = [](const std::byte* address, const auto& entry) {
  return std::less<>()(address, entry.region.base);
};

}  // namespace

void SharedArrays::add(const SharedRegion& region,
                       std::weak_ptr<const SharedMemory> memory) {
  const std::lock_guard lock(mutex_);
  const auto next =
      std::upper_bound(entries_.begin(), entries_.end(), region.base, is_before);
  entries_.insert(next, {region, std::move(memory)});
}

void SharedArrays::remove(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_,
                [=](const Entry& entry) { return entry.region.number == number; });
}

std::optional<SharedRegion> SharedArrays::find(const Buffer& buffer) const {
  if (!buffer.is_contiguous()) return std::nullopt;
  const auto* first = static_cast<const std::byte*>(buffer.data);
  const std::lock_guard lock(mutex_);
  const auto next =
      std::upper_bound(entries_.begin(), entries_.end(), first, is_before);
  if (next == entries_.begin()) return std::nullopt;
  const SharedRegion& region = std::prev(next)->region;
  const std::byte* mine = region.part(region.rank);
  if (first < mine || first + buffer.num_bytes() > mine + region.bytes)
    return std::nullopt;
  return region;
}

std::optional<SharedArrays::Held> SharedArrays::hold(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_)
    if (entry.region.number == number)
      if (auto memory = entry.memory.lock())
        return Held{entry.region, std::move(memory)};
  return std::nullopt;
}

}  // namespace allhands
