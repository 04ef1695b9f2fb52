#include "allhands/arena/cooperative_copy.hpp"

#include "allhands/base/mixed.hpp"
#include "allhands/base/read_once.hpp"
#include "allhands/transport/shm/slicing.hpp"

namespace allhands {
namespace {

Slices slices_of(const Arena& arena, int sender) {
  return Slices(reinterpret_cast<std::byte*>(&arena.handover(sender).slices));
}

std::uint32_t number_of(const Arena& arena) {
  return static_cast<std::uint32_t>(arena.sequence());
}

// Detects an overwritten address, so that nobody writes to a wrong place in another
// process.
std::uint64_t check_of(std::uint64_t address, std::uint32_t number) {
  return mixed({address, number});
}

}  // namespace

void CooperativeReceives::open(int sender, const Buffer& to) {
  receives_.push_back({sender, &to, std::nullopt});
  if (!to.is_contiguous()) return;
  Handover& handover = arena_.handover(sender);
  handover.address = reinterpret_cast<std::uint64_t>(to.data);
  handover.check = check_of(handover.address, number_of(arena_));
  receives_.back().slices = slices_of(arena_, sender);
  receives_.back().slices->open(number_of(arena_),
                                Slicing(to.num_bytes(), arena_.tuning()).count());
}

void CooperativeReceives::complete(const PeerArrays& peers) {
  for (Receive& receive : receives_) {
    const std::uint64_t address = peers.address(receive.sender, 0);
    if (!receive.slices) arena_.read_peer(receive.sender, address, *receive.to);
    while (const auto i = receive.slices ? receive.slices->take_first() : std::nullopt)
      copy(receive, address, *i);
  }
  for (const Receive& receive : receives_) {
    arena_.wait(receive.sender, arena_.clock() + 1);
    if (const auto i = receive.slices ? receive.slices->failed() : std::nullopt)
      copy(receive, peers.address(receive.sender, 0), *i);
  }
  receives_.clear();
}

void CooperativeReceives::copy(const Receive& receive, std::uint64_t address,
                               std::uint32_t i) {
  const Slicing cut(receive.to->num_bytes(), arena_.tuning());
  if (i >= cut.count()) throw arena_.nonsense_of(receive.sender);
  arena_.read_peer(receive.sender, address + cut.begin(i),
                   receive.to->at_byte(cut.begin(i)), cut.length(i));
}

void CooperativeReceives::close() {
  if (arena_.is_forked()) return;  // the slices are the parent's, which goes on
  for (Receive& receive : receives_)
    if (receive.slices) receive.slices->close();
  for (const Receive& receive : receives_)
    if (receive.slices && receive.slices->is_sender_busy())
      receive.slices->wait_for_sender([&] { return arena_.is_alive(receive.sender); });
  receives_.clear();
}

void cooperative_send(Arena& arena, int receiver, const Buffer& from) {
  Slices slices = slices_of(arena, arena.rank());
  Handover& handover = arena.handover(arena.rank());
  const std::uint64_t address = read_once(handover.address);
  const bool is_told = read_once(handover.check) == check_of(address, number_of(arena));
  const Slicing cut(from.num_bytes(), arena.tuning());
  while (arena.can_write_peers()) {
    const auto i = slices.take_last(number_of(arena), cut.count());
    if (!i) return;
    if (!is_told || *i >= cut.count()) {
      slices.put_back(number_of(arena), false);
      throw arena.nonsense_of(receiver);
    }
    const bool is_written = arena.write_peer(
        receiver, address + cut.begin(*i), from.at_byte(cut.begin(*i)), cut.length(*i));
    slices.put_back(number_of(arena), is_written);
  }
}

}  // namespace allhands
