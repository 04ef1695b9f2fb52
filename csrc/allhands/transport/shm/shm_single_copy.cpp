#include "allhands/transport/shm/shm_single_copy.hpp"

#include "allhands/transport/shm/peer_memory.hpp"
#include "allhands/transport/shm/slicing.hpp"

namespace allhands {

ArrayKey ShmSender::key_of(const Buffer& buffer) const {
  if (!buffer.is_contiguous() || buffer.num_bytes() < tuning_.handover_bytes)
    return kNoKey;
  return reinterpret_cast<std::uint64_t>(buffer.data);
}

void ShmSender::join(std::uint32_t message, const Buffer& from, ArrayKey receiver) {
  message_ = message;
  from_ = from.at_byte(0);
  bytes_ = from.num_bytes();
  to_ = receiver;
  has_part_ = !is_refused_;
}

bool ShmSender::copy_part() {
  if (!has_part_) return false;
  const Slicing cut(bytes_, tuning_);
  const auto i = slices_.take_last(message_, cut.count());
  if (i) {
    is_refused_ = !write_memory_of(pid_, to_ + cut.begin(*i), from_ + cut.begin(*i),
                                   cut.length(*i));
    slices_.put_back(message_, !is_refused_);
  }
  has_part_ = i && !is_refused_;
  return i.has_value();
}

bool ShmReceiver::can_receive(const Buffer& buffer) const {
  return !is_refused_ && buffer.is_contiguous();
}

ArrayKey ShmReceiver::begin(std::uint32_t message, const Buffer& to, ArrayKey sender) {
  to_ = to.at_byte(0);
  bytes_ = to.num_bytes();
  from_ = sender;
  slices_.open(message, Slicing(bytes_, tuning_).count());
  is_open_ = true;
  return reinterpret_cast<std::uint64_t>(to.data);
}

bool ShmReceiver::read(std::uint32_t i) {
  const Slicing cut(bytes_, tuning_);
  const PeerRead outcome = read_memory_of(sender_.pid, from_ + cut.begin(i),
                                          to_ + cut.begin(i), cut.length(i));
  is_refused_ = outcome != PeerRead::Done;
  return !is_refused_;
}

SingleCopyReceiver::State ShmReceiver::copy_part() {
  if (const auto i = slices_.take_first())
    if (!read(*i)) return State::Refused;
  if (!slices_.is_complete()) return State::Going;
  if (const auto i = slices_.failed())
    if (!read(*i)) return State::Refused;
  return State::Complete;
}

void ShmReceiver::end() {
  is_open_ = false;
  slices_.close();
  if (slices_.is_sender_busy())
    slices_.wait_for_sender([this] { return is_alive(sender_); });
}

}  // namespace allhands
