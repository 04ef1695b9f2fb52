// Reading the memory of the other ranks' processes. If the host refuses it for one
// rank, no rank does it, since all must agree on the way of an operation. No rank needs
// to be able to write: what a sender cannot write, the receiver reads.
//
// Each rank tries to read the next rank, not all of them. A rank that may read nobody
// finds that out itself. A rank that nobody may read is found by the one before it. If
// ranks fall into kinds that can read only their own kind, some rank is followed by one
// of another kind, and finds that out. If a kernel let a rank read the next one but not
// the one after that, the read itself would fail, which then breaks the group.
#include "allhands/transport/shm/peer_memory.hpp"

#include <algorithm>
#include <atomic>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/rounds.hpp"
#include "allhands/base/error.hpp"
#include "allhands/kernels/pack.hpp"
#include "allhands/transport/shm/peer_memory.hpp"

namespace allhands {
namespace {

constexpr std::uint32_t kReads = 1, kCannot = 2;

// A read is done in pieces of this size; between two, the rank checks whether the group
// has failed.
constexpr std::size_t kPiece = std::size_t{4} << 20;

// Data read for a strided array passes through a block of this size.
constexpr std::size_t kBlock = std::size_t{64} << 10;

}  // namespace

// Call before this rank enters its first operation.
void Arena::let_peers_read() {
  let_siblings_read();
  control(rank()).probe_address = reinterpret_cast<std::uint64_t>(probe_.get());
  control(rank()).probe = *probe_;
}

void Arena::try_to_read_peers() {
  const int next = (rank() + 1) % size();
  std::uint64_t seen = 0;
  bool can = read_memory_of(process(next).pid, control(next).probe_address, &seen,
                            sizeof(seen)) == PeerRead::Done &&
             seen == control(next).probe;
  control(rank()).reads_peers.store(can ? kReads : kCannot, std::memory_order_relaxed);
  meet();
  for (int peer = 0; peer < size(); ++peer)
    can = can && control(peer).reads_peers.load(std::memory_order_relaxed) == kReads;
  can_read_peers_ = can;
}

void Arena::read_peer(int rank, std::uint64_t address, void* to, std::size_t bytes) {
  const int pid = process(rank).pid;
  for (auto* at = static_cast<std::byte*>(to); bytes > 0;) {
    if (has_failed()) throw_failure();
    const std::size_t piece = std::min(bytes, kPiece);
    switch (read_memory_of(pid, address, at, piece)) {
      case PeerRead::Done:
        break;
      case PeerRead::Gone:
        fail_and_throw(ErrorKind::RankFailed, describe(rank) + " died", {rank});
      case PeerRead::Refused:
        if (has_failed()) throw_failure();
        fail_and_throw(ErrorKind::Backend,
                       "the memory of " + describe(rank) + " cannot be read any more",
                       {});
    }
    at += piece;
    address += piece;
    bytes -= piece;
  }
}

void Arena::read_peer(int rank, std::uint64_t address, const Buffer& to) {
  if (to.is_contiguous()) return read_peer(rank, address, to.data, to.num_bytes());
  const std::size_t element = size_of(to.dtype);
  const Cut cut = {to.count, kBlock / element};
  std::byte* const block = scratch(kBlock);
  for (std::size_t i = 0; i < cut.rounds(); ++i) {
    read_peer(rank, address + cut.begin(i) * element, block, cut.length(i) * element);
    unpack(block, to, cut.begin(i), cut.length(i));
  }
}

bool Arena::write_peer(int rank, std::uint64_t address, void* from, std::size_t bytes) {
  const int pid = process(rank).pid;
  can_write_peers_ = can_write_peers_ && write_memory_of(pid, address, from, bytes);
  return can_write_peers_;
}

void Arena::part_from_peers() {
  // The data was read before the flag below is: a rank that gives up reports it first,
  // before its array may change.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (failure().state.load(std::memory_order_relaxed) != SharedFailure::kNone) {
    wait_until_told();
    if (has_failed()) throw_failure();
    fail_and_throw(ErrorKind::Backend, "the group was given up", {});
  }
  meet();
}

}  // namespace allhands
