#include "allhands/arena/mismatch.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "allhands/base/rank_text.hpp"

namespace allhands {
namespace {

// Where two ranks differ in sizes alone, which the texts of their calls do not tell.
std::string difference_in_sizes(const std::vector<int>& ranks,
                                const std::vector<Descriptor>& called) {
  for (std::size_t i = 1; i < called.size(); ++i)
    if (called[i] != called[0] && describe(called[i]) == describe(called[0]))
      return "; ranks " + std::to_string(ranks[0]) + " and " +
             std::to_string(ranks[i]) +
             " pass arrays of different sizes, or in another order";
  return "";
}

}  // namespace

Error mismatch_error(const Membership& group, std::uint64_t sequence,
                     const std::vector<int>& ranks,
                     const std::vector<Descriptor>& called) {
  const auto number_of = [&](int i) { return ranks[static_cast<std::size_t>(i)]; };
  const auto name = [&](int i) {
    return "rank " + std::to_string(number_of(i)) +
           (number_of(i) == group.rank ? " (this process)" : "");
  };
  const auto call_of = [&](int i, bool) {
    return ": " + describe(called[static_cast<std::size_t>(i)]);
  };
  std::vector<int> all(ranks.size());
  std::iota(all.begin(), all.end(), 0);
  const auto self = std::ranges::find(ranks, group.rank) - ranks.begin();
  std::vector<int> different;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (called[i] != called[static_cast<std::size_t>(self)])
      different.push_back(ranks[i]);
  return Error(ErrorKind::Mismatch,
               "the ranks of group " + group.quoted() +
                   " called different things as operation #" +
                   std::to_string(sequence) + ": " +
                   tell_of(all, group.size(), number_of, name, call_of, "; ") +
                   difference_in_sizes(ranks, called),
               std::move(different));
}

}  // namespace allhands
