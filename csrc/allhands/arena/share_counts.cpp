#include "allhands/arena/share_counts.hpp"

#include <algorithm>

#include "allhands/base/mixed.hpp"
#include "allhands/base/rank_text.hpp"

namespace allhands {
namespace {

// An odd number, different for each pair of ranks. So for one pair, (sent - expected)
// times this is 0 only if the two agree. If several pairs disagree, their terms would
// have to cancel out: a chance of 1 in 2^64, or of 1 in 2^(64 - z) if all their
// differences end in z zero bits.
std::uint64_t weight_of(int from, int to) {
  const auto pair = static_cast<std::uint64_t>(from) << 32 |
                    static_cast<std::uint64_t>(static_cast<std::uint32_t>(to));
  return mixed({pair}) | 1;
}

}  // namespace

std::uint64_t digest_of_shares(int rank, const std::vector<Buffer>& outputs,
                               const std::vector<Buffer>& inputs) {
  std::uint64_t digest = 0;
  for (int peer = 0; peer < static_cast<int>(inputs.size()); ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    digest += inputs[i].count * weight_of(rank, peer) -
              outputs[i].count * weight_of(peer, rank);
  }
  return digest;
}

void ShareDisagreement::add(int from, int to, std::uint64_t sent,
                            std::uint64_t expected) {
  if (sent == expected) return;
  if (ranks_.size() < 4 * kFew)  // one line is read
    text_ += (text_.empty() ? "rank " : "; rank ") + std::to_string(from) + " sends " +
             std::to_string(sent) + " elements to rank " + std::to_string(to) +
             ", which expects " + std::to_string(expected);
  for (const int rank : {from, to})
    if (std::ranges::find(ranks_, rank) == ranks_.end()) ranks_.push_back(rank);
}

}  // namespace allhands
