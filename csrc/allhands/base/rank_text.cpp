#include "allhands/base/rank_text.hpp"

namespace allhands {
namespace {

constexpr char kReports[] = " reports: ";

}  // namespace

std::string ranges(const std::vector<int>& ranks) {
  constexpr int kMostParts = 12;
  std::string text;
  int num_parts = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - i < 2) last = i;  // two are not a range
    if (num_parts++ == kMostParts) return text + ", ...";
    if (i != 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last != i) text.append("-").append(std::to_string(ranks[last]));
    i = last + 1;
  }
  return text;
}

std::string counted_ranges(const std::vector<int>& ranks, int size) {
  if (ranks.size() <= kFew) return ranges(ranks);
  return ranges(ranks) + " (" + std::to_string(ranks.size()) + " of " +
         std::to_string(size) + ")";
}

std::string reported_by(const std::string& who, const std::string& text) {
  return text.find(kReports) == text.npos ? who + kReports + text : text;
}

std::string to_pass_on(std::string text) {
  constexpr char kSelf[] = " (this process)";
  for (std::size_t at; (at = text.find(kSelf)) != text.npos;)
    text.erase(at, sizeof kSelf - 1);
  const std::size_t reports = text.find(kReports);
  const std::size_t who = reports == text.npos ? 0 : text.rfind("rank ", reports);
  return who == text.npos ? text : text.substr(who);
}

}  // namespace allhands
