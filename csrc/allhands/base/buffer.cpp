#include "allhands/base/buffer.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "allhands/base/extent.hpp"

namespace allhands {

Buffer view_as_real(Buffer buffer) {
  if (!is_complex(buffer.dtype)) return buffer;
  buffer.dtype = buffer.dtype == DType::Complex64 ? DType::Float32 : DType::Float64;
  if (!buffer.is_contiguous())
    buffer.dimensions.push_back({2, static_cast<std::int64_t>(size_of(buffer.dtype))});
  buffer.count *= 2;
  buffer.first *= 2;
  return buffer;
}

bool overlap(const Buffer& a, const Buffer& b) {
  if (a.count == 0 || b.count == 0) return false;
  const Extent one = extent_of(a), other = extent_of(b);
  return one.begin < other.end && other.begin < one.end;
}

std::size_t num_bytes(const std::vector<Buffer>& list) {
  std::size_t bytes = 0;
  for (const Buffer& buffer : list) bytes += buffer.num_bytes();
  return bytes;
}

bool overlap(const std::vector<Buffer>& a, const std::vector<Buffer>& b) {
  const auto extent_of_all = [](const std::vector<Buffer>& list) {
    Extent all = {std::numeric_limits<std::intptr_t>::max(), 0};
    for (const Buffer& buffer : list) {
      if (buffer.count == 0) continue;
      const Extent extent = extent_of(buffer);
      all = {std::min(all.begin, extent.begin), std::max(all.end, extent.end)};
    }
    return all;
  };
  const Extent one = extent_of_all(a), other = extent_of_all(b);
  return one.begin < other.end && other.begin < one.end;
}

std::size_t largest_count(const std::vector<Buffer>& list) {
  std::size_t most = 0;
  for (const Buffer& buffer : list) most = std::max(most, buffer.count);
  return most;
}

}  // namespace allhands
