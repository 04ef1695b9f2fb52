// In which order many ranks meet: those of one cache first, then those of one socket,
// then all. No rank waits for more than some others, and what one writes only few read,
// mostly near it. Pure: the same on every rank, from the same places.
#pragma once

#include <span>
#include <vector>

#include "allhands/host/place.hpp"

namespace allhands {

class MeetingTree {
 public:
  // So many ranks meet at once, at most: a rank and its children of one level.
  static constexpr std::size_t kWidth = 16;

  // `places`: where each rank is. Ranks that are anywhere meet in the order of ranks.
  explicit MeetingTree(std::span<const Place> places);

  // The rank that is told last, and tells first.
  int top() const { return top_; }
  // Whom `rank` waits for, and tells then; nearest first.
  const std::vector<int>& children(int rank) const {
    return children_[static_cast<std::size_t>(rank)];
  }
  // Whom it tells first; -1 for the top.
  int parent(int rank) const { return parents_[static_cast<std::size_t>(rank)]; }
  bool is_leaf(int rank) const { return children(rank).empty(); }

 private:
  // Leads them together; the one that leads them all, who is the first of them.
  int unite(std::vector<int> ranks);

  std::vector<std::vector<int>> children_;
  std::vector<int> parents_;
  int top_;
};

}  // namespace allhands
