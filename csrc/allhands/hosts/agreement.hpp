// How all ranks of a group on several hosts agree on what they call, and tell each
// other a few bytes with it.
//
// The ranks of a host meet in their arena, the leaders tell each other what their hosts
// call, and each leader tells its host. The ranks' bytes go along with this.
#pragma once

#include <memory>
#include <vector>

#include "allhands/arena/descriptor.hpp"
#include "allhands/hosts/bytes.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// What each rank has told.
class Contributions {
 public:
  // What each host has told is the list of what its ranks have told, within memory that
  // `holder` keeps. Throws Backend if it is not.
  Contributions(const Crossing& crossing, const std::vector<BytesView>& by_host,
                std::shared_ptr<const void> holder);
  Contributions(const Contributions&) = delete;
  Contributions& operator=(const Contributions&) = delete;

  BytesView of(int rank) const { return of_[static_cast<std::size_t>(rank)]; }

 private:
  const std::shared_ptr<const void> holder_;
  std::vector<BytesView> of_;
};

// Returns, on every rank, what all ranks have told, once all have called this with the
// same descriptor. What this rank tells is copied. Throws Mismatch on every rank if
// they differ; all ranks are then at the same point. Also throws Timeout, RankFailed,
// or what broke the group.
Contributions agree(const Crossing& crossing, const Descriptor& descriptor,
                    BytesView told);
// The same where a rank tells each host something else: `told` by host. Each host
// learns no more than that.
Contributions agree_by_host(const Crossing& crossing, const Descriptor& descriptor,
                            const std::vector<BytesView>& told);

// The error for what `rank` has told the others and cannot be.
Error nonsense_of(const Crossing& crossing, int rank);

}  // namespace allhands
