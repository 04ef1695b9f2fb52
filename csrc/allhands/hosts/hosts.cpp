#include "allhands/hosts/hosts.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace allhands {

Hosts::Hosts(const Membership& membership) : rank_(membership.rank) {
  std::map<std::string, int> numbers;
  for (int rank = 0; rank < membership.size(); ++rank) {
    const auto [found, is_new] =
        numbers.try_emplace(membership.process(rank).host.text(), num_hosts());
    if (is_new) ranks_.emplace_back();
    std::vector<int>& there = ranks_[static_cast<std::size_t>(found->second)];
    host_of_.push_back(found->second);
    local_rank_of_.push_back(static_cast<int>(there.size()));
    there.push_back(rank);
  }
  const auto fewest = std::ranges::min_element(
      ranks_, {}, [](const std::vector<int>& there) { return there.size(); });
  num_slices_ = static_cast<int>(fewest->size());
}

}  // namespace allhands
