#include "allhands/engine/handover.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "allhands/base/peer_memory.hpp"

namespace allhands {
namespace {

constexpr std::size_t kPage = 4096;

// How long who gives a receive up waits for the slice that its sender is writing. That
// takes microseconds of CPU; longer only where the sender's process has been stopped.
constexpr std::chrono::seconds kPatience{1};
// A process counts as dead from when its first thread is; another one may write yet.
constexpr std::chrono::milliseconds kPatienceWithTheDead{20};

std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

std::byte* at(const Buffer& buffer, std::size_t offset) {
  return static_cast<std::byte*>(buffer.data) + offset;
}

}  // namespace

// Two slices at least, so that both sides have one.
Slicing::Slicing(std::size_t bytes, const Tuning& tuning)
    : bytes(bytes),
      slice(std::max({round_up(bytes / Slices::kMost + 1, kPage),
                      std::min<std::size_t>(tuning.slice_bytes,
                                            round_up((bytes + 1) / 2, kPage))})) {}

std::uint32_t Slicing::count() const {
  return static_cast<std::uint32_t>((bytes + slice - 1) / slice);
}

std::size_t Slicing::length(std::uint32_t i) const {
  return std::min(slice, bytes - begin(i));
}

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
  const PeerRead outcome = read_memory_of(
      pid_, address_ + cut.begin(i), at(receive_->buffer, cut.begin(i)), cut.length(i));
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

void Inbound::wait_for_sender(const std::function<bool()>& is_alive) const {
  const Deadline patience = Deadline::after(kPatience);
  while (is_sender_busy() && is_alive() && !patience.is_expired())
    std::this_thread::yield();
  const Deadline last = Deadline::after(
      std::min<Deadline::Duration>(kPatienceWithTheDead, patience.remaining()));
  while (is_sender_busy() && !last.is_expired()) std::this_thread::yield();
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
    is_refused_ = !write_memory_of(pid_, address_ + cut.begin(*i),
                                   at(send_->buffer, cut.begin(*i)), cut.length(*i));
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
