#include "allhands/arena/meeting_tree.hpp"

#include <map>
#include <numeric>

namespace allhands {
namespace {

// Groups `ranks` by `key` of each; groups and their members are in rank order.
template <class Key>
std::vector<std::vector<int>> grouped(const std::vector<int>& ranks, Key key) {
  std::map<int, std::vector<int>> groups;
  std::vector<std::vector<int>> result;
  for (const int rank : ranks) groups[key(rank)].push_back(rank);
  for (auto& [_, group] : groups) result.push_back(std::move(group));
  return result;
}

}  // namespace

MeetingTree::MeetingTree(std::span<const Place> places)
    : children_(places.size()), parents_(places.size(), -1) {
  const auto place = [&](int rank) { return places[static_cast<std::size_t>(rank)]; };
  std::vector<int> all(places.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> sockets;
  for (const auto& socket : grouped(all, [&](int r) { return place(r).socket; })) {
    std::vector<int> caches;
    for (const auto& cache : grouped(socket, [&](int r) { return place(r).cache; }))
      caches.push_back(unite(cache));
    sockets.push_back(unite(caches));
  }
  top_ = unite(sockets);
}

int MeetingTree::unite(std::vector<int> ranks) {
  while (ranks.size() > 1) {
    std::vector<int> leaders;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (i % kWidth == 0) {
        leaders.push_back(ranks[i]);
        continue;
      }
      parents_[static_cast<std::size_t>(ranks[i])] = leaders.back();
      children_[static_cast<std::size_t>(leaders.back())].push_back(ranks[i]);
    }
    ranks = std::move(leaders);
  }
  return ranks.front();
}

}  // namespace allhands
