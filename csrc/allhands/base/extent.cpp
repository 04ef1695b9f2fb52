#include "allhands/base/extent.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace allhands {

Extent extent_of(const Buffer& buffer) {
  const auto at = reinterpret_cast<std::intptr_t>(buffer.data);
  if (buffer.is_contiguous())
    return {at, at + static_cast<std::intptr_t>(buffer.num_bytes())};
  Extent extent = {at, at + static_cast<std::intptr_t>(size_of(buffer.dtype))};
  for (const Dimension& dimension : buffer.dimensions) {
    const std::int64_t reach = (dimension.size - 1) * dimension.stride;
    (reach < 0 ? extent.begin : extent.end) += reach;
  }
  return extent;
}

bool are_apart(std::span<const Buffer> arrays) {
  std::vector<Extent> extents;
  for (const Buffer& buffer : arrays)
    if (buffer.count > 0) extents.push_back(extent_of(buffer));
  std::ranges::sort(extents, {}, &Extent::begin);
  for (std::size_t i = 1; i < extents.size(); ++i)
    if (extents[i].begin < extents[i - 1].end) return false;
  return true;
}

}  // namespace allhands
