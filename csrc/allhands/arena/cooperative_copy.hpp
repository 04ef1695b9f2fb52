// What ranks send to one receiver in a collective, copied by both sides at once where
// one would copy and the others wait: the receiver reads slices from the beginning, a
// sender writes slices from the end, each by a system call (see Slices).
//
// A rank that writes to another process has to be sure that the memory is still the
// right one. So the receiver opens the slices before the ranks meet. However its
// operation ends, it closes them, and waits for those that senders are still writing,
// before its arrays may change. A sender that gives up reports that before its array
// may change. A receiver does not trust what it has read until it has checked for such
// a report (Arena::part_from_peers).
#pragma once

#include <optional>
#include <vector>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/peer_arrays.hpp"
#include "allhands/base/buffer.hpp"
#include "allhands/transport/shm/slices.hpp"

namespace allhands {

// The receiver's side of what both sides copy in one collective.
class CooperativeReceives {
 public:
  explicit CooperativeReceives(Arena& arena) : arena_(arena) {}
  ~CooperativeReceives() { close(); }
  CooperativeReceives(const CooperativeReceives&) = delete;
  CooperativeReceives& operator=(const CooperativeReceives&) = delete;

  // Call after Arena::begin and before the ranks meet. From now on `sender`, which
  // sends to nobody else in this operation, may write to `to`. If `to` is strided it
  // may not, and the receiver copies alone.
  void open(int sender, const Buffer& to);
  // Copies what the senders do not copy themselves, from the first buffer that each of
  // them has named. Returns when all data is there and each sender has published the
  // end of its part.
  void complete(const PeerArrays& peers);
  // After this, nobody writes any more. Call it before peers may be in the next
  // operation.
  void close();

 private:
  struct Receive {
    int sender;
    const Buffer* to;
    std::optional<Slices> slices;
  };

  void copy(const Receive& receive, std::uint64_t address, std::uint32_t i);

  Arena& arena_;
  std::vector<Receive> receives_;
};

// The sender's side, called once the ranks have met: copies `from`, which is
// contiguous, until no slice is left. The caller must publish next.
void cooperative_send(Arena& arena, int receiver, const Buffer& from);

}  // namespace allhands
