// An array cut into contiguous parts, one per participant or one per chunk.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "allhands/algorithms/schedule.hpp"

namespace allhands {

class Partition {
 public:
  // Parts of these lengths, one after the other.
  explicit Partition(std::span<const std::size_t> counts);

  // `count` elements in `size` parts, whose lengths differ by at most one.
  static Partition even(std::size_t count, int size);
  // `size` parts of `count` elements each.
  static Partition equal(std::size_t count, int size);
  // `count` elements in even parts of at most `most` elements each: as few parts as
  // possible, but at least one.
  static Partition chunks(std::size_t count, std::size_t most);
  // The parts in the order `first`, `first + 1`, ..., with part 0 after the last one.
  Partition rotated(int first) const;

  int size() const { return static_cast<int>(starts_.size()) - 1; }
  std::size_t total() const { return starts_.back(); }
  std::size_t at(int i) const { return starts_[static_cast<std::size_t>(i)]; }
  std::size_t count(int i) const { return at(i + 1) - at(i); }
  std::size_t largest() const;

  // Part i of `memory`.
  Range part(Memory memory, int i) const { return {memory, at(i), count(i)}; }
  // `num` parts from `first` on, with part 0 after the last one: one range of `memory`,
  // or two. The ranges of the same parts are the same for all participants and
  // memories.
  std::vector<Range> parts(Memory memory, int first, int num) const;

 private:
  Partition() = default;

  std::vector<std::size_t> starts_;  // of the parts, and the end
};

// i + by, modulo `size`. `i` is in [0, size), |by| at most `size`.
inline int round_about(int i, int by, int size) { return (i + by + size) % size; }

}  // namespace allhands
