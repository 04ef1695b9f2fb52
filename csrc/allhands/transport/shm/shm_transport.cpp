#include "allhands/transport/shm/shm_transport.hpp"

#include <utility>

#include "allhands/base/futex.hpp"
#include "allhands/transport/shm/peer_memory.hpp"

namespace allhands {
namespace {

Placement placement_of(const MessageMemory& memory, std::byte* base,
                       const Membership& membership, const Tuning& tuning) {
  std::vector<Seat*> seats;
  for (int rank = 0; rank < membership.size(); ++rank)
    seats.push_back(&memory.doorbell(base, rank).seat);
  return Placement(std::move(seats), memory.head(base).moves, membership.rank,
                   tuning.yields_per_look);
}

}  // namespace

ShmTransport::ShmTransport(std::shared_ptr<SharedMemory> memory, std::byte* base,
                           const Membership& membership, const Tuning& tuning,
                           HasDeparted has_departed)
    : memory_(std::move(memory)),
      base_(base),
      membership_(membership),
      tuning_(tuning),
      has_departed_(std::move(has_departed)),
      layout_(membership.size()),
      head_(layout_.head(base)),
      doorbell_(layout_.doorbell(base, membership.rank)),
      placement_(placement_of(layout_, base, membership, tuning)),
      links_(static_cast<std::size_t>(membership.size())),
      is_writer_(links_.size()) {
  let_siblings_read();
  doorbell_.is_here.store(1, std::memory_order_release);
  tell_change();  // some ranks may wait for this one before they leave
}

ShmTransport::~ShmTransport() {
  for (const std::atomic<ShmLink*>& link : links_) delete link.load();
}

ShmLink& ShmTransport::make_link(int peer) {
  auto made = std::make_unique<ShmLink>(layout_, base_, membership_.rank, peer,
                                        membership_.process(peer), tuning_);
  ShmLink* others = nullptr;
  if (!links_[static_cast<std::size_t>(peer)].compare_exchange_strong(others,
                                                                      made.get()))
    return *others;
  return *made.release();
}

void ShmTransport::find_writers(std::uint32_t num) {
  seen_writers_ = num;
  for (int peer = 0; peer < membership_.size(); ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    if (is_writer_[i] || layout_.entry(base_, peer, membership_.rank).load() == 0)
      continue;
    is_writer_[i] = true;
    writers_.push_back(peer);
  }
}

void ShmTransport::sleep(std::uint32_t seen, std::chrono::nanoseconds limit) {
  MessageMemory::Word& sleepers = layout_.sleepers(base_, membership_.rank);
  const MessageMemory::Word::value_type mine = layout_.sleeper_bit(membership_.rank);
  // Sequentially consistent with the rank that announces a change and then looks who
  // sleeps:
  // either that rank sees this one sleep or this one sees the change.
  doorbell_.waiters.fetch_add(1, std::memory_order_seq_cst);
  sleepers.fetch_or(mine, std::memory_order_seq_cst);
  const std::uint32_t count = doorbell_.count.load(std::memory_order_seq_cst);
  if (count + head_.num_changes.load(std::memory_order_seq_cst) == seen)
    futex_wait(doorbell_.count, count, limit);
  // This may clear the bit of another thread of this rank that goes to sleep just now.
  // That thread then misses a change, but only until its limit has passed.
  if (doorbell_.waiters.fetch_sub(1, std::memory_order_seq_cst) == 1)
    sleepers.fetch_and(~mine, std::memory_order_seq_cst);
}

Presence ShmTransport::presence(int peer) const {
  const std::uint32_t word = doorbell(peer).presence.load(std::memory_order_acquire);
  if (word == static_cast<std::uint32_t>(Presence::Here)) return Presence::Here;
  return word == static_cast<std::uint32_t>(Presence::Aborted) ? Presence::Aborted
                                                               : Presence::Left;
}

// A peer that never joined may have left in peace before its process ended.
bool ShmTransport::has_died(int peer) {
  return doorbell(peer).is_here.load(std::memory_order_acquire) != 0 &&
         Transport::has_died(peer);
}

bool ShmTransport::was_alive_lately(int peer) {
  Doorbell& theirs = doorbell(peer);
  if (!allhands::is_alive(membership_.process(peer), theirs.pulse)) return false;
  if (theirs.is_here.load(std::memory_order_acquire) == 0 &&
      has_departed_lately(peer, has_departed_, theirs.pulse)) {
    // On behalf of that rank, whose presence the caller sees at its next look.
    theirs.presence.store(static_cast<std::uint32_t>(Presence::Left),
                          std::memory_order_release);
    tell_change();
  }
  return true;
}

void ShmTransport::leave(Presence how, const Error&) {
  doorbell_.presence.store(static_cast<std::uint32_t>(how), std::memory_order_release);
  if (how == Presence::Aborted)
    head_.num_aborted.fetch_add(1, std::memory_order_release);
  tell_change();
}

// Ranks that are awake see the number; ranks that sleep are woken.
void ShmTransport::tell_change() {
  head_.num_changes.fetch_add(1, std::memory_order_seq_cst);
  layout_.for_each_sleeper(base_, [this](int rank) { doorbell(rank).ring(); });
}

}  // namespace allhands
