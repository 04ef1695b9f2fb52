// ProgressEngine: what messages do when they arrive.
#include <algorithm>
#include <cstring>
#include <string>

#include "allhands/base/wait_awake.hpp"
#include "allhands/engine/progress_engine.hpp"
#include "allhands/kernels/pack.hpp"

namespace allhands {

namespace {

// A larger message comes later, since each of the two has copied as much before.
std::uint64_t spins_for(const Buffer& buffer, const Tuning& tuning) {
  return tuning.spins * std::min(buffer.num_bytes(), tuning.eager_bytes) / 4096;
}

}  // namespace

// The usual small message of a program that waits for each: it is there or comes within
// a spin, is the next one from its source and fits, and nothing else waits to be
// matched. It goes from the ring to its array without a Transfer. False: it is not so,
// and nothing happened.
bool ProgressEngine::recv_at_once(const Buffer& buffer, int from, std::int64_t tag) {
  for (std::uint64_t i = 0; !has_record_from(from); ++i) {
    if (from == kAnySource || (i >= tuning_.spins && i >= spins_for(buffer, tuning_)))
      return false;
    pause_cpu();
  }
  const std::lock_guard lock(mutex_);
  Channel& peer = channel(from);
  if (ended_ || peer.refused || !matching_.is_empty()) return false;
  const std::byte* record = peer.in.front();
  if (record == nullptr) return false;
  Message message;
  std::memcpy(&message, record, sizeof(message));
  if (message.kind != MessageKind::Eager || message.tag != tag ||
      message.dtype != buffer.dtype || message.count != buffer.count)
    return false;
  unpack(data_of(record), buffer, 0, buffer.count);
  peer.in.settle(kept_bytes(message));
  if (peer.in.pop()) peer.their_bell.ring();
  return true;
}

// A message meets its receive.
void ProgressEngine::start(int source, const Message& message, const std::byte* data,
                           TransferPtr receive, Ended& ended) {
  const Buffer& buffer = receive->buffer;
  if (message.kind == MessageKind::Eager)
    channel(source).in.settle(kept_bytes(message));
  if (message.dtype != buffer.dtype || message.count != buffer.count) {
    channel(source).post_control({MessageKind::Refuse, buffer.dtype, message.send_id, 0,
                                  message.tag, buffer.count});
    const Error error = mismatch(source, message, *receive);
    ended.add(std::move(receive), std::make_exception_ptr(error));
    return;
  }
  receive->source = source;
  if (message.kind == MessageKind::Eager) {
    unpack(data, buffer, 0, buffer.count);
    ended.add(std::move(receive), nullptr);
    return;
  }
  std::uint64_t address = 0;
  std::memcpy(&address, data, sizeof(address));
  if (address == 0 || !channel(source).inbound.can_take(buffer))
    return take_in_pieces(source, std::move(receive), message.send_id);
  channel(source).taking.push_back({std::move(receive), message.send_id, address});
  take_next(source);
}

void ProgressEngine::take_in_pieces(int source, TransferPtr receive,
                                    std::uint32_t send_id) {
  const std::uint32_t id = receive->id;
  const std::size_t count = receive->buffer.count;
  channel(source).post_control(
      {MessageKind::Accept, receive->buffer.dtype, send_id, id, receive->tag, count});
  channel(source).receiving[id] = {std::move(receive), send_id, count};
}

void ProgressEngine::take_piece(int source, const Message& message,
                                const std::byte* data, Ended& ended) {
  auto& receiving = channel(source).receiving;
  const auto found = receiving.find(message.recv_id);
  if (found == receiving.end()) return;
  Channel::Receiving& entry = found->second;
  if (entry.transfer) {
    unpack(data, entry.transfer->buffer, entry.transfer->moved, message.count);
    entry.transfer->moved += message.count;
  }
  entry.left -= message.count;
  if (entry.left > 0) return;
  if (entry.transfer) ended.add(std::move(entry.transfer), nullptr);
  receiving.erase(found);
}

// The peer's receive has another dtype or count than our send. If that has returned
// already, the oldest receive from this peer fails instead, since it may never get an
// answer now, or the oldest send to it, or else the next call with it.
void ProgressEngine::take_refusal(int source, const Message& message, Ended& ended) {
  const std::string text = "send to rank " + std::to_string(source) + ", tag " +
                           std::to_string(message.tag) + ", on group '" +
                           membership_.name + "': its recv is for " +
                           name_of(message.dtype) + ", count " +
                           std::to_string(message.count);
  if (TransferPtr send = channel(source).take(message.send_id)) {
    const Error error(ErrorKind::Mismatch,
                      text + ", the send has " + name_of(send->buffer.dtype) +
                          ", count " + std::to_string(send->buffer.count),
                      {source});
    ended.add(std::move(send), std::make_exception_ptr(error));
    return;
  }
  const Error error(ErrorKind::Mismatch, text + "; an earlier send did not fit it",
                    {source});
  if (TransferPtr receive = matching_.take_waiting_for(source))
    ended.add(std::move(receive), std::make_exception_ptr(error));
  else if (const TransferPtr send = channel(source).oldest())
    withdraw(send, error, ended);
  else if (!channel(source).refused)
    channel(source).refused = error;
}

void ProgressEngine::take_cancel(int source, const Message& message, Ended& ended) {
  ++channel(source).num_cancels;
  matching_.drop_offer(source, message.send_id);
  if (TransferPtr receive = end_taking(source, message.send_id)) {
    const Error error = given_up(*receive);
    ended.add(std::move(receive), std::make_exception_ptr(error));
    return;
  }
  auto& receiving = channel(source).receiving;
  for (auto entry = receiving.begin(); entry != receiving.end(); ++entry) {
    if (entry->second.send_id != message.send_id) continue;
    if (entry->second.transfer) {
      const Error error = given_up(*entry->second.transfer);
      ended.add(std::move(entry->second.transfer), std::make_exception_ptr(error));
    }
    receiving.erase(entry);
    return;
  }
}

Error ProgressEngine::given_up(const Transfer& receive) const {
  return Error(ErrorKind::Backend, describe(receive) + ": the sender gave it up");
}

Error ProgressEngine::mismatch(int source, const Message& sent,
                               const Transfer& receive) const {
  return Error(ErrorKind::Mismatch,
               describe(receive) + ": rank " + std::to_string(source) + " sent " +
                   name_of(sent.dtype) + ", count " + std::to_string(sent.count),
               {source});
}

}  // namespace allhands
