// What ranks send to one receiver in a collective, copied by both sides at once where
// one would copy and the others wait: the receiver reads slices from the beginning, a
// sender writes slices from the end, each by a system call (see Slices).
//
// A rank that writes to another process has to be sure of its memory: the receiver
// opens the slices before the ranks meet, and whatever ends its operation, it closes
// them and waits for those that senders have in hand before its arrays may change. A
// sender that gives up tells of it before its array may change; a receiver that has
// read takes nothing for good before it has looked (Arena::part_from_peers).
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

  // After Arena::begin and before the ranks meet: from now on `sender`, which sends to
  // nobody else in this operation, may write to `to`. Not where that is strided:
  // then the receiver copies alone.
  void open(int sender, const Buffer& to);
  // Copies what the senders do not of the first buffer that each has told of. Returns
  // when all is there, and each sender has published the end of its part.
  void complete(const PeerArrays& peers);
  // Nobody writes any more. Before peers may be in the next operation.
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

// The sender's side, once the ranks have met: copies `from`, which is contiguous, until
// no slice is left. Publish next.
void cooperative_send(Arena& arena, int receiver, const Buffer& from);

}  // namespace allhands
