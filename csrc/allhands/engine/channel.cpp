#include "allhands/engine/channel.hpp"

#include <algorithm>
#include <cstring>

#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

// Unmatched small messages that a rank keeps of one sender.
constexpr std::size_t kMaxKeptBytes = std::size_t{16} << 20;

void write_header(std::byte* record, const Message& message) {
  std::memcpy(record, &message, sizeof(message));
}

}  // namespace

Channel::Channel(Ring out, Ring in, Bell& their_bell, const Tuning& tuning)
    : in(in),
      their_bell(their_bell),
      out_(out),
      eager_limit_(std::min(tuning.eager_bytes, out.max_record() / 2)),
      piece_limit_(std::min(tuning.piece_bytes, out.max_record() - sizeof(Message))) {}

TransferPtr Channel::accept(std::uint32_t send_id, std::uint32_t recv_id) {
  TransferPtr send = refuse(send_id);
  if (send) streaming_.push_back({send, recv_id});
  return send;
}

TransferPtr Channel::refuse(std::uint32_t send_id) {
  const auto found = offered_.find(send_id);
  if (found == offered_.end()) return nullptr;
  TransferPtr send = std::move(found->second);
  offered_.erase(found);
  return send;
}

bool Channel::withdraw(const Transfer& send) {
  const auto is_it = [&](const TransferPtr& other) { return other.get() == &send; };
  if (std::erase_if(fresh_, is_it) != 0) return true;
  const bool offered = std::erase_if(offered_, [&](const auto& entry) {
                         return is_it(entry.second);
                       }) != 0;
  const bool streaming = std::erase_if(streaming_, [&](const Streaming& stream) {
                           return is_it(stream.transfer);
                         }) != 0;
  if (offered || streaming)
    post_control({MessageKind::Cancel, send.buffer.dtype, send.id, 0, send.tag, 0});
  return offered || streaming;
}

TransferPtr Channel::oldest() const {
  if (!offered_.empty()) return offered_.begin()->second;
  return fresh_.empty() ? nullptr : fresh_.front();
}

std::vector<TransferPtr> Channel::sends() const {
  std::vector<TransferPtr> all(fresh_.begin(), fresh_.end());
  for (const auto& [id, send] : offered_) all.push_back(send);
  for (const Streaming& stream : streaming_) all.push_back(stream.transfer);
  return all;
}

bool Channel::send_at_once(const Buffer& buffer, std::int64_t tag, std::uint32_t id) {
  if (!control_.empty() || !fresh_.empty()) return false;
  if (kind_of(buffer) != MessageKind::Eager) return false;
  if (!write_first(buffer, tag, id, MessageKind::Eager)) return false;
  their_bell.ring();
  return true;
}

bool Channel::push(std::vector<TransferPtr>& done) {
  bool wrote = false;
  for (; !control_.empty() && write_control(control_.front()); control_.pop_front())
    wrote = true;
  for (; !fresh_.empty(); fresh_.pop_front()) {
    TransferPtr& send = fresh_.front();
    const MessageKind kind = kind_of(send->buffer);
    if (!write_first(send->buffer, send->tag, send->id, kind)) break;
    wrote = true;
    if (kind == MessageKind::Eager)
      done.push_back(std::move(send));
    else
      offered_[send->id] = std::move(send);
  }
  while (!streaming_.empty() && write_piece(streaming_.front())) {
    wrote = true;
    Streaming& stream = streaming_.front();
    if (stream.transfer->moved < stream.transfer->buffer.count) continue;
    done.push_back(std::move(stream.transfer));
    streaming_.pop_front();
  }
  if (wrote) their_bell.ring();
  return wrote;
}

MessageKind Channel::kind_of(const Buffer& buffer) {
  if (buffer.num_bytes() > eager_limit_) return MessageKind::Offer;
  if (eager_bytes_ - settled_ >= kMaxKeptBytes) settled_ = out_.settled();
  const bool is_kept_little = eager_bytes_ - settled_ < kMaxKeptBytes;
  return is_kept_little ? MessageKind::Eager : MessageKind::Offer;
}

bool Channel::write_control(const Message& message) {
  std::byte* record = out_.reserve(sizeof(Message));
  if (record == nullptr) return false;
  write_header(record, message);
  out_.commit();
  return true;
}

bool Channel::write_first(const Buffer& buffer, std::int64_t tag, std::uint32_t id,
                          MessageKind kind) {
  const bool eager = kind == MessageKind::Eager;
  const std::size_t bytes = eager ? buffer.num_bytes() : 0;
  std::byte* record = out_.reserve(sizeof(Message) + bytes);
  if (record == nullptr) return false;
  const Message message = {kind, buffer.dtype, id, 0, tag, buffer.count};
  write_header(record, message);
  if (eager) {
    pack(buffer, 0, buffer.count, data_of(record));
    eager_bytes_ += kept_bytes(message);
  }
  out_.commit();
  return true;
}

bool Channel::write_piece(Streaming& stream) {
  Transfer& send = *stream.transfer;
  const std::size_t element = size_of(send.buffer.dtype);
  const std::size_t most = piece_limit_ / element;
  const std::size_t count = std::min(most, send.buffer.count - send.moved);
  std::byte* record = out_.reserve(sizeof(Message) + count * element);
  if (record == nullptr) return false;
  write_header(record, {MessageKind::Data, send.buffer.dtype, send.id, stream.recv_id,
                        send.tag, count});
  pack(send.buffer, send.moved, count, data_of(record));
  out_.commit();
  their_bell.ring();  // it copies this piece while we fill the next
  send.moved += count;
  return true;
}

}  // namespace allhands
