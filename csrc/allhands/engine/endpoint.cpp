#include "allhands/engine/endpoint.hpp"

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>

#include "allhands/engine/transfer_text.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

// The part of an unmatched message that is kept: its data, or the key of an offer.
std::vector<std::byte> kept_part(const Message& message,
                                 std::span<const std::byte> record) {
  const std::size_t bytes =
      message.kind == MessageKind::Offer
          ? sizeof(ControlMessage)
          : sizeof(Message) + message.count * size_of(message.dtype);
  return {record.begin(), record.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

// Notes that a receive or a probe has matched this message.
void note(Transfer& receive, int source, const Message& message) {
  receive.source = source;
  receive.came_tag = message.number;
  receive.came_bytes = message.count * size_of(message.dtype);
}

// The part of a record that has landed elsewhere.
Landed landed_of(Link& link, std::span<const std::byte> record) {
  Landings* const landings = link.landings();
  if (landings == nullptr || record.size() != LandingRecord::kHeadBytes) return {};
  return landings->landed();
}

}  // namespace

Endpoint::Endpoint(Transport& transport, const Membership& members,
                   const Tuning& tuning, const PeerWatch& watch)
    : transport_(transport),
      members_(members),
      tuning_(tuning),
      watch_(watch),
      channels_(static_cast<std::size_t>(members.size())) {}

Endpoint::Channel& Endpoint::channel(int peer) {
  std::unique_ptr<Channel>& slot = channels_[static_cast<std::size_t>(peer)];
  if (!slot) {
    slot = std::make_unique<Channel>(transport_.link(peer), tuning_);
    open_.push_back(peer);
  }
  return *slot;
}

bool Endpoint::send_at_once(const Buffer& buffer, int to, Tag tag) {
  if (!channel(to).outbox.send_at_once(buffer, tag, next_id_)) return false;
  ++next_id_;
  return true;
}

bool Endpoint::recv_at_once(const Buffer& buffer, int from, Tag tag) {
  if (!matching_.is_empty()) return false;
  Channel& peer = channel(from);
  if (peer.refusal) return false;
  const std::span<const std::byte> record = peer.link.front();
  if (record.empty() || landed_of(peer.link, record).key != kNoLanding) return false;
  const Message message = read_message(record);
  if (message.kind != MessageKind::Eager || message.tag() != tag ||
      message.dtype != buffer.dtype || message.count != buffer.count)
    return false;
  unpack(data_of(record), buffer, 0, buffer.count);
  peer.link.settle(kept_bytes(message));
  peer.link.pop();
  return true;
}

void Endpoint::post_sends(std::span<const TransferPtr> sends, Ended& ended) {
  Channel& peer = channel(sends.front()->peer);
  for (const TransferPtr& send : sends) {
    send->id = next_id_++;
    if (send->tag.context == Context::Collectives)
      send->landing = key_of_collectives(++peer.num_sent);
    peer.outbox.post(send);
  }
  peer.outbox.push(ended);
}

void Endpoint::post_recv(const TransferPtr& receive, Ended& ended) {
  receive->id = next_id_++;
  if (receive->fit == Fit::Look) return post_probe(receive, ended);
  if (receive->tag.context == Context::Collectives && receive->peer != kAnySource)
    receive->landing = key_of_collectives(++channel(receive->peer).num_awaited);
  const auto kept = matching_.match(*receive);
  if (!kept) {
    expect(*receive);
    return matching_.post(receive);
  }
  start(kept->source, kept->message, kept->record, {}, receive, ended);
  push_and_copy(kept->source, channel(kept->source), ended);
}

void Endpoint::post_probe(const TransferPtr& probe, Ended& ended) {
  progress(ended);
  const Unexpected* const kept = matching_.find(*probe);
  if (kept == nullptr) return matching_.post(probe);
  note(*probe, kept->source, kept->message);
  ended.add(probe);
}

bool Endpoint::has_counterpart(const Transfer& to_itself, Ended& ended) {
  progress(members_.rank, ended);
  return to_itself.is_send ? matching_.has_receive_for(members_.rank, to_itself.tag)
                           : matching_.find(to_itself) != nullptr;
}

bool Endpoint::progress(Ended& ended) {
  bool moved = false;
  for (const int peer : transport_.ready()) moved |= pull(peer, ended);
  for (const int peer : open_) moved |= push_and_copy(peer, *find(peer), ended);
  return moved;
}

bool Endpoint::progress(int peer, Ended& ended) {
  const bool moved = pull(peer, ended);
  Channel* const open = find(peer);
  return open != nullptr && push_and_copy(peer, *open, ended) ? true : moved;
}

void Endpoint::end_lent(int peer, Ended& ended) {
  for (const int each : open_)
    if (each == peer || peer == kAnySource) find(each)->outbox.end_lent(ended);
}

bool Endpoint::pull(int source, Ended& ended) {
  Link& link = transport_.link(source);
  if (!link.has_record()) return false;
  Channel& peer = channel(source);
  if (peer.is_broken) return false;
  try {
    for (auto record = link.front(); !record.empty(); record = link.front()) {
      handle(source, record, ended);
      link.pop();
    }
  } catch (const LinkError& error) {
    throw_broken(source, error);
  }
  return true;
}

bool Endpoint::push_and_copy(int to, Channel& peer, Ended& ended) {
  bool moved = false;
  try {
    if (!peer.is_broken) moved = move(peer, ended);
  } catch (const LinkError& error) {
    throw_broken(to, error);
  }
  const bool is_copying =
      !peer.is_broken && (peer.outbox.has_part() || peer.inbox.has_part());
  if (is_copying != peer.is_copying) num_copying_ += is_copying ? 1 : -1;
  peer.is_copying = is_copying;
  return moved;
}

bool Endpoint::move(Channel& peer, Ended& ended) {
  const bool has_pushed = peer.outbox.push(ended);
  // Where both have much to receive, each reads its own: that is faster than to write.
  if (!peer.inbox.copy_part(ended)) return peer.outbox.copy_part() || has_pushed;
  peer.outbox.push(ended);
  return true;
}

// From now on the link is not used.
void Endpoint::throw_broken(int peer, const LinkError& error) {
  Channel& broken = channel(peer);
  // Thrown already within another call of this object.
  if (broken.is_broken) throw error;
  broken.is_broken = true;
  throw LinkError("messages with " + members_.describe(peer) + ": " + error.what());
}

void Endpoint::expect(Transfer& receive) {
  if (receive.landing == kNoLanding || receive.fit == Fit::UpTo) return;
  Landings* const landings = channel(receive.peer).link.landings();
  if (landings != nullptr && can_land(receive.buffer))
    landings->expect(receive.landing, memory_of(receive.buffer));
}

void Endpoint::forget(const Transfer& receive) {
  if (receive.landing == kNoLanding || receive.fit == Fit::UpTo) return;
  if (Landings* const landings = channel(receive.peer).link.landings())
    landings->forget(receive.landing);
}

void Endpoint::handle(int source, std::span<const std::byte> record, Ended& ended) {
  const Landed landed = landed_of(channel(source).link, record);
  const Message message = read_message(record, landed);
  switch (message.kind) {
    case MessageKind::Eager:
    case MessageKind::Offer:
      return meet(source, message, record, landed, ended);
    case MessageKind::Join:
      return channel(source).outbox.join(message.send_id, read_key(record));
    case MessageKind::Over:
      if (TransferPtr send = channel(source).outbox.take(message.send_id))
        ended.add(std::move(send));
      return;
    case MessageKind::Accept:
      return channel(source).outbox.accept(message.send_id, message.recv_id);
    case MessageKind::Data:
      return channel(source).inbox.take_piece(message, data_of(record), landed, ended);
    case MessageKind::Refuse:
      return handle_refusal(source, message, ended);
    case MessageKind::Cancel:
      return handle_cancel(source, message, ended);
  }
}

// Gives a new message to its receive, or keeps it until there is one.
void Endpoint::meet(int source, const Message& message,
                    std::span<const std::byte> record, const Landed& landed,
                    Ended& ended) {
  if (TransferPtr receive = matching_.match(source, message.tag()))
    return start(source, message, record, landed, std::move(receive), ended);
  if (landed.key == kNoLanding) {
    matching_.keep({source, message, kept_part(message, record)});
    while (TransferPtr probe = matching_.match_probe(source, message.tag())) {
      note(*probe, source, message);
      ended.add(std::move(probe));
    }
    return;
  }
  // The receive has been given up meanwhile.
  channel(source).link.settle(kept_bytes(message));
}

void Endpoint::start(int source, const Message& message,
                     std::span<const std::byte> record, const Landed& landed,
                     TransferPtr receive, Ended& ended) {
  Channel& peer = channel(source);
  Buffer& buffer = receive->buffer;
  forget(*receive);
  if (landed.key != kNoLanding && landed.key != receive->landing)
    end_and_throw(std::move(receive), "a message came to where another one belongs",
                  ended);
  if (receive->fit == Fit::UpTo)
    buffer.count = std::min<std::size_t>(buffer.count, message.count);
  const bool is_eager = message.kind == MessageKind::Eager;
  if (is_eager) peer.link.settle(kept_bytes(message));
  if (message.dtype != buffer.dtype || message.count != buffer.count) {
    peer.outbox.post_control({MessageKind::Refuse, buffer.dtype, message.send_id, 0,
                              message.context, message.number, buffer.count});
    const Error error = mismatch_error(*receive, source, message, members_);
    return ended.add(std::move(receive), error);
  }
  note(*receive, source, message);
  if (!is_eager) return stream(source, message, record, std::move(receive), ended);
  if (landed.key == kNoLanding) unpack(data_of(record), buffer, 0, buffer.count);
  ended.add(std::move(receive));
}

// Starts to receive the data of an offer.
void Endpoint::stream(int source, const Message& message,
                      std::span<const std::byte> record, TransferPtr receive,
                      Ended& ended) {
  ArrayKey sender;
  try {
    sender = read_key(record);
  } catch (const LinkError& error) {
    end_and_throw(std::move(receive), error.what(), ended);
  }
  channel(source).inbox.start(std::move(receive), message.send_id, sender);
}

// Ends a receive that is no longer in any list, so that nothing else would end it.
void Endpoint::end_and_throw(TransferPtr receive, const char* what, Ended& ended) {
  const Error error(ErrorKind::Backend, describe(*receive, members_) + ": " + what);
  ended.add(std::move(receive), error);
  throw LinkError(what);
}

// The peer's receive has another dtype or count than our send. If that send has
// returned already, another call must report it: the oldest receive from this peer in
// the context, which may never get an answer now, or the oldest send to it, or else the
// next call with it.
void Endpoint::handle_refusal(int source, const Message& message, Ended& ended) {
  const std::string text = "send to rank " + std::to_string(source) + ", tag " +
                           std::to_string(message.number) + ", on group " +
                           members_.quoted() + ": its recv is for " +
                           name_of(message.dtype) + ", count " +
                           std::to_string(message.count);
  Channel& peer = channel(source);
  peer.has_refused = true;
  if (TransferPtr send = peer.outbox.take(message.send_id)) {
    const Error error(ErrorKind::Mismatch,
                      text + ", the send has " + name_of(send->buffer.dtype) +
                          ", count " + std::to_string(send->buffer.count),
                      {source});
    return ended.add(std::move(send), error);
  }
  const Error error(ErrorKind::Mismatch, text + "; an earlier send did not fit it",
                    {source});
  if (TransferPtr receive = matching_.take_waiting_for(source, message.context)) {
    forget(*receive);
    ended.add(std::move(receive), error);
  } else if (const TransferPtr send = peer.outbox.oldest(message.context))
    withdraw(send, error, ended);
  else if (!peer.refusal)
    peer.refusal = error;
}

void Endpoint::handle_cancel(int source, const Message& message, Ended& ended) {
  matching_.drop_offer(source, message.send_id);
  if (TransferPtr receive = channel(source).inbox.cancel(message.send_id)) {
    // A rank whose group breaks gives up its messages, and leaves only then.
    const std::optional<Error> abortion = watch_.abortion();
    const Error error = abortion ? aborted_error(*receive, *abortion, members_)
                                 : withdrawn_error(*receive, members_);
    ended.add(std::move(receive), error);
  }
}

void Endpoint::withdraw(const TransferPtr& transfer, const Error& error, Ended& ended) {
  // This is under the lock, so no other thread is about to end the transfer.
  if (transfer->work.is_completed()) return;
  if (!transfer->is_send) {
    matching_.withdraw(*transfer);
    forget(*transfer);
  }
  Channel* const peer =
      transfer->other() == kAnySource ? nullptr : find(transfer->other());
  if (peer != nullptr && transfer->is_send) peer->outbox.withdraw(*transfer);
  if (peer != nullptr && !transfer->is_send) peer->inbox.withdraw(*transfer);
  ended.add(transfer, error);
  // Tells the peer.
  if (peer != nullptr) push_and_copy(transfer->other(), *peer, ended);
}

void Endpoint::end_all(const Error& reason, Ended& ended) {
  // The last one first: what is before it may go on meanwhile.
  const std::vector<TransferPtr> all = pending();
  for (const TransferPtr& transfer : std::views::reverse(all)) {
    try {
      withdraw(transfer, aborted_error(*transfer, reason, members_), ended);
    } catch (const LinkError&) {
      // The transfer has ended all the same; only the peer cannot be told.
    }
  }
}

std::vector<TransferPtr> Endpoint::pending() const {
  std::vector<TransferPtr> all = matching_.posted();
  for (const int peer : open_) {
    const Channel& open = *find(peer);
    for (TransferPtr& send : open.outbox.sends()) all.push_back(std::move(send));
    for (TransferPtr& receive : open.inbox.receives())
      all.push_back(std::move(receive));
  }
  return all;
}

bool Endpoint::has_sends() const {
  return std::any_of(open_.begin(), open_.end(),
                     [this](int peer) { return !find(peer)->outbox.sends().empty(); });
}

bool Endpoint::is_safe_to_leave(int peer) const {
  const Channel* const open = find(peer);
  return open == nullptr || (open->outbox.is_idle() && open->link.is_safe_to_leave());
}

bool Endpoint::has_unreceived(int peer) const {
  const Channel* const open = find(peer);
  return open != nullptr && !open->has_refused && open->outbox.has_unreceived();
}

void Endpoint::throw_refusal(int peer) {
  Channel* const open = find(peer);
  if (open == nullptr) return;
  if (auto refusal = std::exchange(open->refusal, std::nullopt)) throw *refusal;
}

}  // namespace allhands
