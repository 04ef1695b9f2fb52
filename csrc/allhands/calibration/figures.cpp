#include "allhands/calibration/figures.hpp"

#include <cmath>

namespace allhands {

std::uint64_t Figures::break_even(std::uint64_t more) const {
  const auto lost = [&](std::size_t i) {  // by reading
    return static_cast<double>(read[i] + more) - static_cast<double>(slots[i]);
  };
  std::size_t first = kSizes.size();  // from here on reading wins
  while (first > 0 && lost(first - 1) < 0) --first;
  if (first == 0) return kSizes[0];
  if (first == kSizes.size()) return large_read < large_slots ? kLargePages : kNever;
  const double share = lost(first - 1) / (lost(first - 1) - lost(first));
  const std::size_t gap = kSizes[first] - kSizes[first - 1];
  return kSizes[first - 1] +
         static_cast<std::uint64_t>(std::llround(share * static_cast<double>(gap)));
}

}  // namespace allhands
