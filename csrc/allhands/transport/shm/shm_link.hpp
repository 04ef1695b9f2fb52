// A link through two rings in shared memory, one for each direction.
#pragma once

#include "allhands/host/process.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/link.hpp"
#include "allhands/transport/shm/message_memory.hpp"
#include "allhands/transport/shm/shm_single_copy.hpp"

namespace allhands {

class ShmLink final : public Link {
 public:
  // `memory` at `base`, of rank `self`; `process` and `tuning` must outlive the link.
  ShmLink(const MessageMemory& memory, std::byte* base, int self, int peer,
          const ProcessIdentity& process, const Tuning& tuning)
      : out_(memory.ring(base, self, peer), memory.capacity()),
        in_(memory.ring(base, peer, self), memory.capacity()),
        doorbell_(memory.doorbell(base, peer)),
        sender_(memory.slices(base, self, peer), process, tuning),
        receiver_(memory.slices(base, peer, self), process, tuning) {}

  std::size_t max_record() const override { return out_.max_record(); }
  std::byte* reserve(std::size_t bytes) override { return out_.reserve(bytes); }
  void commit() override { out_.commit(); }
  void wake_peer() override { doorbell_.ring(); }
  // A peer that has mapped the memory can read it without us.
  bool is_safe_to_leave() const override {
    return out_.is_empty() || doorbell_.is_here.load() != 0;
  }

  bool has_record() const override { return in_.has_record(); }
  std::span<const std::byte> front() override { return in_.front(); }
  void pop() override {
    if (in_.pop()) doorbell_.ring();
  }
  void settle(std::size_t bytes) override { in_.settle(bytes); }
  std::uint64_t settled() const override { return out_.settled(); }

  SingleCopySender* single_copy_sender() override { return &sender_; }
  SingleCopyReceiver* single_copy_receiver() override { return &receiver_; }

 private:
  RingWriter out_;
  RingReader in_;
  Doorbell& doorbell_;  // the peer's
  ShmSender sender_;
  ShmReceiver receiver_;
};

}  // namespace allhands
