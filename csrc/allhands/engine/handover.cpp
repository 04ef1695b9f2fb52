#include "allhands/engine/handover.hpp"

#include <utility>

#include "allhands/transport/shm/peer_memory.hpp"
#include "allhands/transport/shm/slicing.hpp"

namespace allhands {

bool Inbound::can_take(const Buffer& buffer) const {
  return !is_refused_ && buffer.is_contiguous();
}

void Inbound::begin(TransferPtr receive, std::uint32_t send_id, std::uint64_t address) {
  slices_.open(send_id, Slicing(receive->buffer.num_bytes(), tuning_).count());
  receive_ = std::move(receive);
  send_id_ = send_id;
  address_ = address;
}

bool Inbound::read(std::uint32_t i) {
  const Slicing cut(receive_->buffer.num_bytes(), tuning_);
  const PeerRead outcome =
      read_memory_of(pid_, address_ + cut.begin(i),
                     receive_->buffer.at_byte(cut.begin(i)), cut.length(i));
  is_refused_ = outcome != PeerRead::Done;
  return !is_refused_;
}

Inbound::State Inbound::copy() {
  if (const auto i = slices_.take_first())
    if (!read(*i)) return State::Refused;
  if (!slices_.is_complete()) return State::Going;
  if (const auto i = slices_.failed())
    if (!read(*i)) return State::Refused;
  return State::Complete;
}

std::uint64_t Outbound::address_of(const Buffer& buffer) const {
  if (!buffer.is_contiguous() || buffer.num_bytes() < tuning_.handover_bytes) return 0;
  return reinterpret_cast<std::uint64_t>(buffer.data);
}

void Outbound::join(TransferPtr send, std::uint64_t address) {
  send_ = std::move(send);
  address_ = address;
  has_work_ = !is_refused_;
}

bool Outbound::copy() {
  if (!has_work_) return false;
  const Slicing cut(send_->buffer.num_bytes(), tuning_);
  const auto i = slices_.take_last(send_->id, cut.count());
  if (i) {
    is_refused_ =
        !write_memory_of(pid_, address_ + cut.begin(*i),
                         send_->buffer.at_byte(cut.begin(*i)), cut.length(*i));
    slices_.put_back(send_->id, !is_refused_);
  }
  has_work_ = i && !is_refused_;
  return i.has_value();
}

TransferPtr Outbound::end() {
  has_work_ = false;
  return std::exchange(send_, nullptr);
}

}  // namespace allhands
