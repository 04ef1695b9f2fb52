// An array cut into contiguous parts, one per participant, or one per chunk.
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

  // `count` elements in `size` parts; their lengths differ by one at most.
  static Partition even(std::size_t count, int size);
  // `size` parts of `count` elements each.
  static Partition equal(std::size_t count, int size);
  // `count` elements in as few parts as there may be of at most `most` elements each,
  // as even; at least one.
  static Partition chunks(std::size_t count, std::size_t most);
  // Of part `first`, `first + 1`, ..., in this order, after the last one part 0.
  Partition rotated(int first) const;

  int size() const { return static_cast<int>(starts_.size()) - 1; }
  std::size_t total() const { return starts_.back(); }
  std::size_t at(int i) const { return starts_[static_cast<std::size_t>(i)]; }
  std::size_t count(int i) const { return at(i + 1) - at(i); }
  std::size_t largest() const;

  // Part i of `memory`.
  Range part(Memory memory, int i) const { return {memory, at(i), count(i)}; }
  // `num` parts from `first` on, after the last one part 0: one range of `memory`, or
  // two. All participants get the same ranges of the same parts, whichever the memory.
  std::vector<Range> parts(Memory memory, int first, int num) const;

 private:
  Partition() = default;

  std::vector<std::size_t> starts_;  // and the end
};

// i + by, going round among `size`. `i` is one of them, |by| at most `size`.
inline int round_about(int i, int by, int size) { return (i + by + size) % size; }

}  // namespace allhands
