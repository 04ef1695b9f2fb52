// Whether all ranks of an all_to_all agree on how much goes from each to each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allhands/base/buffer.hpp"
#include "allhands/base/error.hpp"

namespace allhands {

// A digest of what `rank` sends to each rank and expects from each. The digests of all
// ranks add up to 0 if all pairs agree.
std::uint64_t digest_of_shares(int rank, const std::vector<Buffer>& outputs,
                               const std::vector<Buffer>& inputs);

// The pairs of ranks that do not agree, as an error.
class ShareDisagreement {
 public:
  // Notes the pair if the two counts differ.
  void add(int from, int to, std::uint64_t sent, std::uint64_t expected);
  bool is_none() const { return ranks_.empty(); }
  // "<call>: rank 2 sends 3 elements to rank 0, which expects 2"
  Error error(const std::string& call) const {
    return Error(ErrorKind::Mismatch, call + ": " + text_, ranks_);
  }

 private:
  std::string text_;
  std::vector<int> ranks_;
};

}  // namespace allhands
