#include "allhands/transport/shm/shm_link.hpp"

namespace allhands {

void ShmLink::open_out() {
  const RingPlace place = memory_.take_ring(base_, self_, peer_);
  sender_.open(Slices(place.slices));
  out_.emplace(place.ring, place.capacity);
}

// Returns false if the peer has not written yet.
bool ShmLink::open_in() {
  if (entry_.load(std::memory_order_acquire) == 0) return false;
  const RingPlace place = memory_.ring(base_, peer_, self_);
  receiver_.open(Slices(place.slices));
  in_.emplace(place.ring, place.capacity);
  is_in_open_.store(true, std::memory_order_release);
  return true;
}

}  // namespace allhands
