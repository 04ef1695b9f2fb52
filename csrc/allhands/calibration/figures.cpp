#include "allhands/calibration/figures.hpp"

#include <algorithm>

namespace allhands {
namespace {

constexpr double kFarthest = 1 << 20;

}  // namespace

std::uint64_t Figures::break_even() const {
  const auto lost = [&](std::size_t i) {  // by reading
    return static_cast<double>(read[i]) - static_cast<double>(slots[i]);
  };
  std::size_t first = kSizes.size();  // from here on reading wins
  while (first > 0 && lost(first - 1) < 0) --first;
  if (first == 0) return kSizes[0];
  // The line through the last size at which it loses and the next one, or the one
  // before if there is none.
  const std::size_t right = std::min(first, kSizes.size() - 1), left = right - 1;
  const double fall = lost(left) - lost(right);
  if (fall <= 0) return kNever;
  const double size =
      static_cast<double>(kSizes[left]) +
      lost(left) / fall * static_cast<double>(kSizes[right] - kSizes[left]);
  return size > kFarthest ? kNever : static_cast<std::uint64_t>(size);
}

}  // namespace allhands
