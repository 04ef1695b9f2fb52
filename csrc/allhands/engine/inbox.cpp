#include "allhands/engine/inbox.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "allhands/kernels/pack.hpp"

namespace allhands {

void Inbox::start(TransferPtr receive, std::uint32_t send_id, ArrayKey sender) {
  if (sender == kNoKey || single_copy_ == nullptr ||
      !single_copy_->can_receive(receive->buffer))
    return accept(std::move(receive), send_id);
  waiting_.push_back({std::move(receive), send_id, sender});
  begin_next();
}

void Inbox::accept(TransferPtr receive, std::uint32_t send_id) {
  const std::uint32_t id = receive->id;
  const std::size_t count = receive->buffer.count;
  if (landings_ != nullptr && can_land(receive->buffer))
    landings_->expect(key_of_pieces(id), memory_of(receive->buffer));
  outbox_.post_control({MessageKind::Accept, receive->buffer.dtype, send_id, id,
                        receive->tag.context, receive->tag.number, count});
  in_pieces_[id] = {std::move(receive), send_id, count};
}

void Inbox::begin_next() {
  if (copying_.transfer || waiting_.empty()) return;
  copying_ = std::move(waiting_.front());
  waiting_.pop_front();
  const Buffer& buffer = copying_.transfer->buffer;
  const ArrayKey key = single_copy_->begin(copying_.send_id, buffer, copying_.sender);
  outbox_.post_control(
      {MessageKind::Join, buffer.dtype, copying_.send_id, 0,
       copying_.transfer->tag.context, copying_.transfer->tag.number, buffer.count},
      key);
}

void Inbox::take_piece(const Message& message, const std::byte* data,
                       const Landed& landed, Ended& ended) {
  const auto found = in_pieces_.find(message.recv_id);
  if (found == in_pieces_.end()) return;
  InPieces& entry = found->second;
  if (message.count > entry.left)
    throw LinkError(
        "a piece of a large message makes no sense: " + std::to_string(message.count) +
        " elements where " + std::to_string(entry.left) + " are to come");
  if (entry.transfer) take(*entry.transfer, message, data, landed);
  entry.left -= message.count;
  if (entry.left > 0) return;
  forget_landing(message.recv_id);
  if (entry.transfer) ended.add(std::move(entry.transfer));
  in_pieces_.erase(found);
}

void Inbox::take(Transfer& receive, const Message& message, const std::byte* data,
                 const Landed& landed) {
  const Buffer& buffer = receive.buffer;
  if (message.dtype != buffer.dtype)
    throw LinkError(std::string("a piece of a large message makes no sense: it is "
                                "of dtype ") +
                    name_of(message.dtype) + ", its array " + name_of(buffer.dtype));
  if (landed.key == kNoLanding)
    unpack(data, buffer, receive.moved, message.count);
  else if (landed.key != key_of_pieces(receive.id))
    throw LinkError("a piece of a large message came to where another one belongs");
  receive.moved += message.count;
}

void Inbox::forget_landing(std::uint32_t recv_id) {
  if (landings_ != nullptr) landings_->forget(key_of_pieces(recv_id));
}

TransferPtr Inbox::cancel(std::uint32_t send_id) {
  ++num_cancels_;
  if (TransferPtr receive = end_single_copy(send_id)) return receive;
  const auto found =
      std::find_if(in_pieces_.begin(), in_pieces_.end(),
                   [&](const auto& entry) { return entry.second.send_id == send_id; });
  if (found == in_pieces_.end()) return nullptr;
  forget_landing(found->first);
  TransferPtr receive = std::move(found->second.transfer);
  in_pieces_.erase(found);
  return receive;
}

void Inbox::withdraw(const Transfer& receive) {
  const auto is_it = [&](const auto& entry) {
    return entry.transfer.get() == &receive;
  };
  for (auto& [id, entry] : in_pieces_) {
    if (!is_it(entry)) continue;
    forget_landing(id);
    entry.transfer = nullptr;  // its further pieces are dropped
    return;
  }
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), is_it);
  if (is_it(copying_))
    end_single_copy(copying_.send_id);
  else if (found != waiting_.end())
    end_single_copy(found->send_id);
}

// Returns the receive of the current single copy, once the sender no longer writes to
// it.
TransferPtr Inbox::end_copying() {
  single_copy_->end();
  return std::exchange(copying_.transfer, nullptr);
}

// Ends the single copy of what the peer sends as `send_id`, tells the peer, and returns
// the receive. Returns null if there is no such single copy.
TransferPtr Inbox::end_single_copy(std::uint32_t send_id) {
  TransferPtr receive;
  if (copying_.transfer && copying_.send_id == send_id) {
    receive = end_copying();
  } else {
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(),
                     [&](const auto& entry) { return entry.send_id == send_id; });
    if (found == waiting_.end()) return nullptr;
    receive = std::move(found->transfer);
    waiting_.erase(found);
  }
  outbox_.post_control({MessageKind::Over, receive->buffer.dtype, send_id, 0,
                        receive->tag.context, receive->tag.number, 0});
  begin_next();
  return receive;
}

bool Inbox::copy_part(Ended& ended) {
  if (!copying_.transfer) return false;
  const bool has_copied = single_copy_->has_part();
  switch (single_copy_->copy_part()) {
    case SingleCopyReceiver::State::Going:
      return has_copied;
    case SingleCopyReceiver::State::Refused: {
      const std::uint32_t send_id = copying_.send_id;
      accept(end_copying(), send_id);
      begin_next();
      return true;
    }
    case SingleCopyReceiver::State::Complete:
      break;
  }
  // If the sender has given up meanwhile, what was copied may be anything; its message
  // about that is on the way.
  if (single_copy_->num_withdrawn() != num_cancels_) return has_copied;
  ended.add(end_single_copy(copying_.send_id));
  return true;
}

std::vector<TransferPtr> Inbox::receives() const {
  std::vector<TransferPtr> all;
  for (const auto& [id, entry] : in_pieces_)
    if (entry.transfer) all.push_back(entry.transfer);
  if (copying_.transfer) all.push_back(copying_.transfer);
  for (const InOneCopy& entry : waiting_) all.push_back(entry.transfer);
  return all;
}

}  // namespace allhands
