// A slot divided into one part per rank, for operations in which a rank stages
// something else for each of the others.
#pragma once

#include <algorithm>
#include <cstddef>

#include "allhands/arena/arena.hpp"

namespace allhands {

class Parts {
 public:
  // For parts of up to `count` elements, summed over all rounds.
  Parts(const Arena& arena, DType dtype, std::size_t count)
      : arena_(arena),
        element_(size_of(dtype)),
        most_(std::min(count, whole_lines(arena, element_))),
        bytes_(most_ * element_ * static_cast<std::size_t>(arena.size())) {}

  // Elements of a part that fit into one round; at least 1.
  std::size_t most() const { return std::max<std::size_t>(most_, 1); }

  // Where `from` stages data for `to` in round i.
  std::byte* at(int from, std::size_t i, int to) const {
    return arena_.staging(from, i, bytes_) +
           static_cast<std::size_t>(to) * most_ * element_;
  }

 private:
  // In large operations, each part begins on a cache line of its own.
  static std::size_t whole_lines(const Arena& arena, std::size_t element) {
    constexpr std::size_t kCacheLine = 64;
    const std::size_t part =
        arena.chunk_bytes() / static_cast<std::size_t>(arena.size());
    return part / kCacheLine * kCacheLine / element;
  }

  const Arena& arena_;
  std::size_t element_;
  std::size_t most_;
  std::size_t bytes_;
};

}  // namespace allhands
