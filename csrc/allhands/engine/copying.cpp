// ProgressEngine: large messages that both ranks copy from array to array.
#include <algorithm>
#include <utility>

#include "allhands/engine/progress_engine.hpp"

namespace allhands {

// Begins with the oldest that waits, unless one is under way.
void ProgressEngine::take_next(int source) {
  Channel& c = channel(source);
  if (!c.inbound.receive() && !c.taking.empty()) {
    Channel::Taking next = std::move(c.taking.front());
    c.taking.pop_front();
    const Buffer& buffer = next.transfer->buffer;
    c.post_control({MessageKind::Join, buffer.dtype, next.send_id, 0,
                    next.transfer->tag, buffer.count},
                   reinterpret_cast<std::uint64_t>(buffer.data));
    c.inbound.begin(std::move(next.transfer), next.send_id, next.address);
  }
  count_copying(c);
}

// The receive for what the peer sends as `send_id`, if it takes that from its array: no
// longer, and the peer is told.
TransferPtr ProgressEngine::end_taking(int source, std::uint32_t send_id) {
  Channel& c = channel(source);
  TransferPtr receive;
  if (c.inbound.receive() && c.inbound.send_id() == send_id) {
    receive = end_inbound(source);
  } else {
    const auto found =
        std::find_if(c.taking.begin(), c.taking.end(),
                     [&](const auto& taking) { return taking.send_id == send_id; });
    if (found == c.taking.end()) return nullptr;
    receive = std::move(found->transfer);
    c.taking.erase(found);
  }
  c.post_control(
      {MessageKind::Over, receive->buffer.dtype, send_id, 0, receive->tag, 0});
  take_next(source);
  return receive;
}

// The receive that is under way, and that the sender does not write to any more.
TransferPtr ProgressEngine::end_inbound(int source) {
  Inbound& inbound = channel(source).inbound;
  inbound.close();
  if (inbound.is_sender_busy())
    inbound.wait_for_sender([&] { return is_alive(membership_.process(source)); });
  return inbound.end();
}

// Copies a slice of what the peer hands over to us, and one of what we hand over to it.
// True: it did, or something has ended.
bool ProgressEngine::copy(int peer, Ended& ended) {
  Channel& c = channel(peer);
  const bool has_written = c.outbound.copy();
  if (has_written) c.their_bell.ring();
  const bool has_read = c.inbound.receive() && copy_inbound(peer, ended);
  count_copying(c);
  return has_written || has_read;
}

bool ProgressEngine::copy_inbound(int source, Ended& ended) {
  Inbound& inbound = channel(source).inbound;
  const std::uint32_t send_id = inbound.send_id();
  const bool has_moved = inbound.has_work();
  switch (inbound.copy()) {
    case Inbound::State::Going:
      return has_moved;
    case Inbound::State::Refused:
      take_in_pieces(source, end_inbound(source), send_id);
      take_next(source);
      break;
    case Inbound::State::Complete:
      // What its sender gave up meanwhile may be anything by now: we are about to hear.
      if (inbound.withdrawn() != channel(source).num_cancels) return has_moved;
      ended.add(end_taking(source, send_id), nullptr);
  }
  push(source, ended);
  return true;
}

void ProgressEngine::count_copying(Channel& peer) {
  const bool is_copying = peer.outbound.has_work() || peer.inbound.has_work();
  if (is_copying != peer.is_copying) num_copying_ += is_copying ? 1 : -1;
  peer.is_copying = is_copying;
}

}  // namespace allhands
