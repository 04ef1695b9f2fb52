#include "allhands/engine/outbox.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "allhands/kernels/pack.hpp"

namespace allhands {
namespace {

// The most bytes of unmatched small messages that a rank keeps for one sender.
constexpr std::size_t kMaxKeptBytes = std::size_t{16} << 20;
// The size of pieces that go from array to array. One system call sends several, and
// one or two read each of them.
constexpr std::size_t kPieceBytes = std::size_t{512} << 10;
// A message that goes from array to array is eager up to this size. Where that is done,
// an offer and its answer cross a network, which takes longer than one more copy.
constexpr std::size_t kEagerBytesFromArray = std::size_t{256} << 10;

LandingRecord landing_record(const Message& message, const Buffer& data,
                             LandingKey key) {
  LandingRecord record = {{}, memory_of(data), key};
  std::memcpy(record.head.data(), &message, sizeof(message));
  return record;
}

}  // namespace

void Outbox::measure() {
  const std::size_t most = link_.max_record();
  record_limit_ = most - sizeof(Message);
  eager_limit_ = std::min(tuning_.eager_bytes, most / 2);
  if (landings_ != nullptr) eager_limit_ = std::max(eager_limit_, kEagerBytesFromArray);
  eager_limit_ = std::min(eager_limit_, record_limit_);
  const std::size_t piece = landings_ != nullptr ? kPieceBytes : tuning_.piece_bytes;
  piece_limit_ = std::min(piece, record_limit_);
}

TransferPtr Outbox::take(std::uint32_t send_id) {
  if (joined_ && joined_->id == send_id) {
    single_copy_->end();
    return std::exchange(joined_, nullptr);
  }
  const auto found = offered_.find(send_id);
  if (found == offered_.end()) return nullptr;
  TransferPtr send = std::move(found->second);
  offered_.erase(found);
  return send;
}

void Outbox::accept(std::uint32_t send_id, std::uint32_t recv_id) {
  if (TransferPtr send = take(send_id))
    streaming_.push_back({std::move(send), recv_id});
}

void Outbox::join(std::uint32_t send_id, ArrayKey receiver) {
  if (joined_ || single_copy_ == nullptr)
    throw LinkError("a peer began two single copies of one sender at the same time");
  if (!(joined_ = take(send_id))) return;
  single_copy_->join(send_id, joined_->buffer, receiver);
}

void Outbox::withdraw(const Transfer& send) {
  const auto is_it = [&](const TransferPtr& other) { return other.get() == &send; };
  if (const auto found = std::ranges::find_if(fresh_, is_it); found != fresh_.end()) {
    fresh_.erase(found);
    return;
  }
  const auto is_its = [&](const auto& entry) { return is_it(entry.transfer); };
  const bool streaming = std::erase_if(streaming_, is_its) != 0;
  const bool lent = std::erase_if(lent_, is_its) != 0;
  if (landings_ != nullptr && (streaming || lent)) landings_->stop_reading();
  if (lent) return;
  if (!streaming && !is_it(take(send.id))) return;
  if (single_copy_ != nullptr) single_copy_->withdraw();
  post_control({MessageKind::Cancel, send.buffer.dtype, send.id, 0, send.tag.context,
                send.tag.number, 0});
}

TransferPtr Outbox::oldest(Context context) const {
  for (const auto& [id, send] : offered_)
    if (send->tag.context == context) return send;
  for (const TransferPtr& send : fresh_)
    if (send->tag.context == context) return send;
  return nullptr;
}

std::vector<TransferPtr> Outbox::sends() const {
  std::vector<TransferPtr> all(fresh_.begin(), fresh_.end());
  for (const auto& [id, send] : offered_) all.push_back(send);
  for (const Streaming& stream : streaming_) all.push_back(stream.transfer);
  for (const Lent& lent : lent_) all.push_back(lent.transfer);
  if (joined_) all.push_back(joined_);
  return all;
}

bool Outbox::send_at_once(const Buffer& buffer, Tag tag, std::uint32_t id) {
  if (!control_.empty() || !fresh_.empty() || !is_eager(buffer, tag.context))
    return false;
  // Larger ones go from array to array, by a Transfer.
  if (buffer.num_bytes() > tuning_.eager_bytes) return false;
  if (!write_eager(buffer, tag, id)) return false;
  link_.wake_peer();
  return true;
}

bool Outbox::push(Ended& ended) {
  const bool has_ended = end_read(ended);
  bool wrote = false;
  for (; !control_.empty() && write_control(control_.front()); control_.pop_front())
    wrote = true;
  while (push_fresh(ended)) wrote = true;
  while (!streaming_.empty() && write_pieces(streaming_.front())) {
    wrote = true;
    Streaming& stream = streaming_.front();
    if (stream.transfer->moved < stream.transfer->buffer.count) continue;
    TransferPtr send = std::move(stream.transfer);
    streaming_.pop_front();
    lend(std::move(send), num_bodies_, ended);
  }
  if (wrote) link_.wake_peer();
  return wrote || has_ended;
}

// Ends a send that was written, at the latest once the link no longer reads its array.
// Its last body is number `end` - 1.
void Outbox::lend(TransferPtr send, std::uint64_t end, Ended& ended) {
  if (landings_ == nullptr || (lent_.empty() && landings_->num_read() >= end))
    return ended.add(std::move(send));
  lent_.push_back({std::move(send), end});
}

void Outbox::end_lent(Ended& ended) {
  if (lent_.empty()) return;
  landings_->copy_rest();
  end_read(ended);
}

// Returns true if it ended something.
bool Outbox::end_read(Ended& ended) {
  if (lent_.empty()) return false;
  const std::uint64_t num_read = landings_->num_read();
  bool has_ended = false;
  for (; !lent_.empty() && lent_.front().end <= num_read; lent_.pop_front()) {
    ended.add(std::move(lent_.front().transfer));
    has_ended = true;
  }
  return has_ended;
}

// Sends one or more of the fresh messages, the oldest first.
bool Outbox::push_fresh(Ended& ended) {
  if (fresh_.empty()) return false;
  const std::size_t count =
      lands_at_once(*fresh_.front()) ? land_fresh(ended) : write_fresh(ended);
  fresh_.erase(fresh_.begin(), fresh_.begin() + static_cast<std::ptrdiff_t>(count));
  return count != 0;
}

std::size_t Outbox::write_fresh(Ended& ended) {
  TransferPtr& send = fresh_.front();
  const Buffer& buffer = send->buffer;
  if (is_eager(buffer, send->tag.context)) {
    if (!write_eager(buffer, send->tag, send->id)) return 0;
    ended.add(std::move(send));
    return 1;
  }
  const Message offer = {MessageKind::Offer, buffer.dtype,     send->id,    0,
                         send->tag.context,  send->tag.number, buffer.count};
  if (!write_control(ControlMessage(offer, key_of(buffer)))) return 0;
  offered_[send->id] = std::move(send);
  return 1;
}

bool Outbox::lands_at_once(const Transfer& send) {
  return landings_ != nullptr && can_land(send.buffer) &&
         is_eager(send.buffer, send.tag.context);
}

std::size_t Outbox::land_fresh(Ended& ended) {
  std::array<LandingRecord, Landings::kMostAtOnce> records;
  std::array<Message, Landings::kMostAtOnce> messages;
  std::size_t count = 0;
  for (; count < records.size() && count < fresh_.size(); ++count) {
    const Transfer& send = *fresh_[count];
    if (!lands_at_once(send)) break;
    messages[count] = {MessageKind::Eager, send.buffer.dtype, send.id,          0,
                       send.tag.context,   send.tag.number,   send.buffer.count};
    records[count] = landing_record(messages[count], send.buffer, send.landing);
  }
  const std::size_t num_taken = landings_->write({records.data(), count});
  for (std::size_t i = 0; i < num_taken; ++i) {
    eager_bytes_ += kept_bytes(messages[i]);
    lend(std::move(fresh_[i]), ++num_bodies_, ended);
  }
  return num_taken;
}

ArrayKey Outbox::key_of(const Buffer& buffer) const {
  return single_copy_ == nullptr ? kNoKey : single_copy_->key_of(buffer);
}

bool Outbox::copy_part() {
  if (!has_part() || !single_copy_->copy_part()) return false;
  link_.wake_peer();
  return true;
}

// Ranks that agree on a collective receive all that it sends, and soon. So what can go
// from array to array is sent at once.
bool Outbox::is_eager(const Buffer& buffer, Context context) {
  if (record_limit_ == 0) [[unlikely]]
    measure();
  const bool is_expected = landings_ != nullptr && context == Context::Collectives;
  if (buffer.num_bytes() > (is_expected ? record_limit_ : eager_limit_)) return false;
  if (eager_bytes_ - settled_ >= kMaxKeptBytes) settled_ = link_.settled();
  return eager_bytes_ - settled_ < kMaxKeptBytes;
}

bool Outbox::write_control(const ControlMessage& control) {
  std::byte* record = link_.reserve(sizeof(control));
  if (record == nullptr) return false;
  std::memcpy(record, &control, sizeof(control));
  link_.commit();
  return true;
}

bool Outbox::write_eager(const Buffer& buffer, Tag tag, std::uint32_t id) {
  const Message message = {MessageKind::Eager, buffer.dtype, id,          0,
                           tag.context,        tag.number,   buffer.count};
  if (!write_data(message, buffer)) return false;
  eager_bytes_ += kept_bytes(message);
  return true;
}

// Writes all of `part`.
bool Outbox::write_data(const Message& message, const Buffer& part) {
  std::byte* const record = link_.reserve(sizeof(message) + part.num_bytes());
  if (record == nullptr) return false;
  std::memcpy(record, &message, sizeof(message));
  pack(part, 0, part.count, data_of(record));
  link_.commit();
  return true;
}

// Writes one or more pieces of a large message.
bool Outbox::write_pieces(Streaming& stream) {
  Transfer& send = *stream.transfer;
  if (landings_ == nullptr || !can_land(send.buffer)) {
    const Message piece = piece_of(stream, send.moved);
    if (!write_data(piece, send.buffer.slice(send.moved, piece.count))) return false;
    link_.wake_peer();  // the peer copies this piece while we fill the next
    send.moved += piece.count;
    return true;
  }
  std::array<LandingRecord, Landings::kMostAtOnce> records;
  std::size_t count = 0;
  for (std::size_t at = send.moved; count < records.size() && at < send.buffer.count;
       ++count) {
    const Message piece = piece_of(stream, at);
    records[count] = landing_record(piece, send.buffer.slice(at, piece.count),
                                    key_of_pieces(stream.recv_id));
    at += piece.count;
  }
  const std::size_t num_taken = landings_->write({records.data(), count});
  for (std::size_t i = 0; i < num_taken; ++i)
    send.moved += piece_of(stream, send.moved).count;
  num_bodies_ += num_taken;
  return num_taken != 0;
}

Message Outbox::piece_of(const Streaming& stream, std::size_t at) const {
  const Transfer& send = *stream.transfer;
  const std::size_t most = piece_limit_ / size_of(send.buffer.dtype);
  return {MessageKind::Data,
          send.buffer.dtype,
          send.id,
          stream.recv_id,
          send.tag.context,
          send.tag.number,
          std::min(most, send.buffer.count - at)};
}

}  // namespace allhands
