#include "allhands/arena/sparse.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace allhands {
namespace {

Indices united(const Indices& a, const Indices& b) {
  Indices both;
  both.reserve(a.size() + b.size());
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

}  // namespace

bool are_indices(std::span<const std::int64_t> indices, std::size_t num_rows) {
  const auto descends = [](std::int64_t a, std::int64_t b) { return a >= b; };
  return indices.empty() ||
         (indices.front() >= 0 &&
          static_cast<std::uint64_t>(indices.back()) < num_rows &&
          std::ranges::adjacent_find(indices, descends) == indices.end());
}

// Unites the lists in pairs, so that each index is copied once for each doubling of the
// number of ranks.
Indices united(std::vector<Indices> all) {
  for (std::size_t step = 1; step < all.size(); step *= 2)
    for (std::size_t i = 0; i + step < all.size(); i += 2 * step)
      all[i] = united(all[i], all[i + step]);
  return std::move(all.front());
}

void lay_out(SparseArray& array) {
  const std::size_t row_bytes = array.width * size_of(array.values.dtype);
  array.sums = std::make_unique<std::byte[]>(array.sums_bytes());
  std::size_t own = 0;
  for (std::size_t i = 0; i < array.all_indices.size(); ++i) {
    if (own == array.indices.size()) break;
    if (array.all_indices[i] != array.indices[own]) continue;
    std::memcpy(array.sums.get() + i * row_bytes, array.values.at_byte(own * row_bytes),
                row_bytes);
    ++own;
  }
}

}  // namespace allhands
