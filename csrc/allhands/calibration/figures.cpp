#include "allhands/calibration/figures.hpp"

#include <algorithm>
#include <cmath>

namespace allhands {

std::uint64_t Figures::break_even(std::uint64_t more) const {
  const auto lost = [&](std::size_t i) {  // by reading
    return static_cast<double>(read[i] + more) - static_cast<double>(slots[i]);
  };
  std::size_t first = kSizes.size();  // from here on reading wins
  while (first > 0 && lost(first - 1) < 0) --first;
  if (first == 0) return kSizes[0];
  // On a line through these two sizes.
  const std::size_t to = std::min(first, kSizes.size() - 1), from = to - 1;
  const double share = lost(from) / (lost(from) - lost(to));
  const auto gap = static_cast<double>(kSizes[to] - kSizes[from]);
  const double found = static_cast<double>(kSizes[from]) + std::round(share * gap);
  const bool is_near = lost(to) < lost(from) && found <= static_cast<double>(kLargest);
  if (is_near) return static_cast<std::uint64_t>(found);
  return large_read <= large_slots ? kLargePages : kNever;
}

}  // namespace allhands
