#include "allhands/transport/shm/slicing.hpp"

#include <algorithm>

#include "allhands/base/round_up.hpp"
#include "allhands/transport/shm/slices.hpp"

namespace allhands {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

// There are at least two slices, so that each side can copy one.
Slicing::Slicing(std::size_t bytes, const Tuning& tuning)
    : bytes(bytes),
      slice(std::max({round_up(bytes / Slices::kMost + 1, kPage),
                      std::min<std::size_t>(tuning.slice_bytes,
                                            round_up((bytes + 1) / 2, kPage))})) {}

std::uint32_t Slicing::count() const {
  return static_cast<std::uint32_t>((bytes + slice - 1) / slice);
}

std::size_t Slicing::length(std::uint32_t i) const {
  return std::min(slice, bytes - begin(i));
}

}  // namespace allhands
