#include "allhands/transport/shm/shm_transport.hpp"

#include <numeric>
#include <utility>

#include "allhands/transport/shm/peer_memory.hpp"

namespace allhands {
namespace {

Placement placement_of(const MessageMemory& memory, std::byte* base,
                       const Membership& membership, const Tuning& tuning) {
  std::vector<Seat*> seats;
  for (int rank = 0; rank < membership.size(); ++rank)
    seats.push_back(&memory.doorbell(base, rank).seat);
  return Placement(std::move(seats), memory.moves(base), membership.rank,
                   tuning.yields_per_look);
}

}  // namespace

ShmTransport::ShmTransport(std::shared_ptr<SharedMemory> memory, std::byte* base,
                           const Membership& membership, const Tuning& tuning)
    : memory_(std::move(memory)),
      base_(base),
      membership_(membership),
      tuning_(tuning),
      layout_(membership.size()),
      doorbell_(layout_.doorbell(base, membership.rank)),
      placement_(placement_of(layout_, base, membership, tuning)),
      ranks_(static_cast<std::size_t>(membership.size())) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  for (const int peer : ranks_)
    links_.emplace_back(layout_, base_, membership_.rank, peer,
                        membership_.process(peer), tuning_);
  let_siblings_read();
  doorbell_.is_here.store(1, std::memory_order_release);
  ring_all();  // some may wait for us before they leave
}

Presence ShmTransport::presence(int peer) const {
  const std::uint32_t word = doorbell(peer).presence.load(std::memory_order_acquire);
  if (word == static_cast<std::uint32_t>(Presence::Here)) return Presence::Here;
  return word == static_cast<std::uint32_t>(Presence::Aborted) ? Presence::Aborted
                                                               : Presence::Left;
}

void ShmTransport::leave(Presence how) {
  doorbell_.presence.store(static_cast<std::uint32_t>(how), std::memory_order_release);
  ring_all();
}

void ShmTransport::ring_all() {
  for (const int peer : ranks_) doorbell(peer).ring();
}

}  // namespace allhands
