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

Channel::Channel(const Mailroom& room, std::byte* base, int self, int peer,
                 int peer_pid, const Tuning& tuning)
    : in(room.ring(base, peer, self)),
      their_bell(room.bell(base, peer)),
      inbound(room.slices(base, peer, self), peer_pid, tuning),
      outbound(room.slices(base, self, peer), peer_pid, tuning),
      out_(room.ring(base, self, peer)),
      eager_limit_(std::min(tuning.eager_bytes, out_.max_record() / 2)),
      piece_limit_(std::min(tuning.piece_bytes, out_.max_record() - sizeof(Message))) {}

TransferPtr Channel::take(std::uint32_t send_id) {
  if (outbound.send() && outbound.send()->id == send_id) return outbound.end();
  const auto found = offered_.find(send_id);
  if (found == offered_.end()) return nullptr;
  TransferPtr send = std::move(found->second);
  offered_.erase(found);
  return send;
}

void Channel::accept(std::uint32_t send_id, std::uint32_t recv_id) {
  if (TransferPtr send = take(send_id))
    streaming_.push_back({std::move(send), recv_id});
}

void Channel::join(std::uint32_t send_id, std::uint64_t address) {
  if (TransferPtr send = take(send_id)) outbound.join(std::move(send), address);
}

std::uint32_t Channel::taken_by(const Transfer& receive) const {
  if (inbound.receive().get() == &receive) return inbound.send_id();
  for (const Taking& each : taking)
    if (each.transfer.get() == &receive) return each.send_id;
  return 0;
}

bool Channel::withdraw(const Transfer& send) {
  const auto is_it = [&](const TransferPtr& other) { return other.get() == &send; };
  if (std::erase_if(fresh_, is_it) != 0) return true;
  const bool streaming = std::erase_if(streaming_, [&](const Streaming& stream) {
                           return is_it(stream.transfer);
                         }) != 0;
  if (!streaming && !is_it(take(send.id))) return false;
  outbound.withdraw();
  post_control({MessageKind::Cancel, send.buffer.dtype, send.id, 0, send.tag, 0});
  return true;
}

TransferPtr Channel::oldest() const {
  if (!offered_.empty()) return offered_.begin()->second;
  return fresh_.empty() ? nullptr : fresh_.front();
}

std::vector<TransferPtr> Channel::sends() const {
  std::vector<TransferPtr> all(fresh_.begin(), fresh_.end());
  for (const auto& [id, send] : offered_) all.push_back(send);
  for (const Streaming& stream : streaming_) all.push_back(stream.transfer);
  if (outbound.send()) all.push_back(outbound.send());
  return all;
}

bool Channel::send_at_once(const Buffer& buffer, std::int64_t tag, std::uint32_t id) {
  if (!control_.empty() || !fresh_.empty()) return false;
  if (kind_of(buffer) != MessageKind::Eager) return false;
  if (!write_eager(buffer, tag, id)) return false;
  their_bell.ring();
  return true;
}

bool Channel::push(std::vector<TransferPtr>& done) {
  bool wrote = false;
  for (; !control_.empty() && write_control(control_.front()); control_.pop_front())
    wrote = true;
  for (; !fresh_.empty(); fresh_.pop_front()) {
    TransferPtr& send = fresh_.front();
    const Buffer& buffer = send->buffer;
    if (kind_of(buffer) == MessageKind::Eager) {
      if (!write_eager(buffer, send->tag, send->id)) break;
      done.push_back(std::move(send));
    } else {
      if (!write_control(
              {{MessageKind::Offer, buffer.dtype, send->id, 0, send->tag, buffer.count},
               outbound.address_of(buffer)}))
        break;
      offered_[send->id] = std::move(send);
    }
    wrote = true;
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

bool Channel::write_control(const ControlMessage& control) {
  std::byte* record = out_.reserve(sizeof(ControlMessage));
  if (record == nullptr) return false;
  std::memcpy(record, &control, sizeof(control));
  out_.commit();
  return true;
}

bool Channel::write_eager(const Buffer& buffer, std::int64_t tag, std::uint32_t id) {
  std::byte* record = out_.reserve(sizeof(Message) + buffer.num_bytes());
  if (record == nullptr) return false;
  const Message message = {MessageKind::Eager, buffer.dtype, id, 0, tag, buffer.count};
  write_header(record, message);
  pack(buffer, 0, buffer.count, data_of(record));
  eager_bytes_ += kept_bytes(message);
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
