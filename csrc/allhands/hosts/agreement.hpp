// How all ranks of a group on several hosts agree on what they call, and tell each
// other a little on this occasion.
//
// The ranks of a host meet in their arena, the leaders tell each other what their hosts
// call, and each leader tells its host. The ranks' bytes ride along.
#pragma once

#include <vector>

#include "allhands/arena/descriptor.hpp"
#include "allhands/hosts/bytes.hpp"
#include "allhands/hosts/crossing.hpp"

namespace allhands {

// What each rank has told.
class Contributions {
 public:
  // `all`: what the hosts have told, joined, for each of them joined what its ranks
  // have. Throws Backend where it is something else.
  Contributions(const Crossing& crossing, Bytes all);
  Contributions(const Contributions&) = delete;
  Contributions& operator=(const Contributions&) = delete;

  BytesView of(int rank) const { return of_[static_cast<std::size_t>(rank)]; }

 private:
  const Bytes all_;
  std::vector<BytesView> of_;
};

// Returns, on every rank, what all have told, once all have called this with the same
// descriptor. Throws Mismatch on every rank where they differ, and then all are at the
// same point; Timeout, RankFailed, or what broke the group.
Contributions agree(const Crossing& crossing, const Descriptor& descriptor,
                    BytesView told);

// What `rank` has told the others cannot be.
Error nonsense_of(const Crossing& crossing, int rank);

}  // namespace allhands
