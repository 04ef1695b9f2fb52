// In which order many ranks meet: those of one cache first, then those of one socket,
// then all. No rank waits for more than a few others, and what a rank writes is read by
// only a few, mostly near it. The order depends only on the places, so every rank
// computes the same one.
#pragma once

#include <span>
#include <vector>

#include "allhands/host/place.hpp"

namespace allhands {

class MeetingTree {
 public:
  // The most ranks that meet at once: a rank and its children of one level.
  static constexpr std::size_t kWidth = 16;

  // `places`: where each rank is. Ranks without a known place meet in rank order.
  explicit MeetingTree(std::span<const Place> places);

  // The top of the tree: the last to be told that others have come, and the first to
  // tell that all have.
  int top() const { return top_; }
  // The ranks that `rank` waits for, and then tells that all have come; nearest first.
  const std::vector<int>& children(int rank) const {
    return children_[static_cast<std::size_t>(rank)];
  }
  // The rank that `rank` tells first; -1 for the top.
  int parent(int rank) const { return parents_[static_cast<std::size_t>(rank)]; }
  bool is_leaf(int rank) const { return children(rank).empty(); }

 private:
  // Joins `ranks` into one tree. Returns its top, which is the first of them.
  int unite(std::vector<int> ranks);

  std::vector<std::vector<int>> children_;
  std::vector<int> parents_;
  int top_;
};

}  // namespace allhands
