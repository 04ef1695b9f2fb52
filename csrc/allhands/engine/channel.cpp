#include "allhands/engine/channel.hpp"

#include <algorithm>
#include <cstring>

#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

// Up to here a second copy costs less than the round trip of an offer.
constexpr std::size_t kEagerBytes = std::size_t{8} << 10;
// Unmatched small messages that a rank keeps of one sender.
constexpr std::size_t kMaxKeptBytes = std::size_t{16} << 20;
// Small enough that several lie in the ring, large enough that their headers and bells
// do not count.
constexpr std::size_t kPieceBytes = std::size_t{32} << 10;

void write_header(std::byte* record, const Message& message) {
  std::memcpy(record, &message, sizeof(message));
}

}  // namespace

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

bool Channel::push(std::vector<TransferPtr>& done) {
  bool wrote = false;
  for (; !control_.empty() && write_control(control_.front()); control_.pop_front())
    wrote = true;
  for (; !fresh_.empty(); fresh_.pop_front()) {
    TransferPtr& send = fresh_.front();
    const MessageKind kind = kind_of(*send);
    if (!write_first(*send, kind)) break;
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

MessageKind Channel::kind_of(const Transfer& send) const {
  const bool is_small =
      send.buffer.num_bytes() <= std::min(kEagerBytes, out_.max_record() / 2);
  const bool is_kept_little = eager_bytes_ - out_.settled() < kMaxKeptBytes;
  return is_small && is_kept_little ? MessageKind::Eager : MessageKind::Offer;
}

bool Channel::write_control(const Message& message) {
  std::byte* record = out_.reserve(sizeof(Message));
  if (record == nullptr) return false;
  write_header(record, message);
  out_.commit();
  return true;
}

bool Channel::write_first(const Transfer& send, MessageKind kind) {
  const bool eager = kind == MessageKind::Eager;
  const std::size_t bytes = eager ? send.buffer.num_bytes() : 0;
  std::byte* record = out_.reserve(sizeof(Message) + bytes);
  if (record == nullptr) return false;
  const Message message = {kind, send.buffer.dtype, send.id,
                           0,    send.tag,          send.buffer.count};
  write_header(record, message);
  if (eager) {
    pack(send.buffer, 0, send.buffer.count, data_of(record));
    eager_bytes_ += kept_bytes(message);
  }
  out_.commit();
  return true;
}

bool Channel::write_piece(Streaming& stream) {
  Transfer& send = *stream.transfer;
  const std::size_t element = size_of(send.buffer.dtype);
  const std::size_t most =
      std::min(kPieceBytes, out_.max_record() - sizeof(Message)) / element;
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
