// Ranks as messages write them. Up to kFew ranks are named one by one. Of more, those
// with something in common are named together: "ranks 0-38, 41 (40 of 256) died".
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace allhands {

inline constexpr std::size_t kFew = 4;

// "0, 1, 5", or "0-38, 41", for ranks in rising order; only the first dozen parts.
std::string ranges(const std::vector<int>& ranks);
// "3", or "0-38, 41 (40 of 256)" for more than a few ranks.
std::string counted_ranges(const std::vector<int>& ranks, int size);

// "<who> reports: <text>", for a failure that a rank has told. If the rank only passes
// on what it was told, the text stays as it is.
std::string reported_by(const std::string& who, const std::string& text);
// `text` as it is passed on to other ranks: if it has another rank's report, only that.
std::string to_pass_on(std::string text);

// Names ranks with a fact about each. one(rank) names a rank alone, and fact_of(rank,
// is_plural) follows it; number_of(rank) of `size` is the rank's number.
template <class NumberOf, class One, class FactOf>
std::string tell_of(const std::vector<int>& ranks, int size, NumberOf number_of,
                    One one, FactOf fact_of, const std::string& separator = ", ") {
  std::string text;
  const auto add = [&](const std::string& part) {
    text += (text.empty() ? "" : separator) + part;
  };
  if (ranks.size() <= kFew) {
    for (const int rank : ranks) add(one(rank) + fact_of(rank, false));
    return text;
  }
  std::map<std::string, std::vector<int>> alike;
  for (const int rank : ranks) alike[fact_of(rank, false)].push_back(rank);
  // Sorted by the lowest rank of each group.
  std::map<int, const std::vector<int>*> groups;
  for (const auto& [fact, group] : alike) groups[group.front()] = &group;
  std::size_t num_told = 0;
  for (const auto& [first, group] : groups) {
    if (num_told++ == 2 * kFew) {
      add("and others");
      break;
    }
    std::vector<int> numbers;
    for (const int rank : *group) numbers.push_back(number_of(rank));
    add(numbers.size() == 1
            ? one(first) + fact_of(first, false)
            : "ranks " + counted_ranges(numbers, size) + fact_of(first, true));
  }
  return text;
}

}  // namespace allhands
