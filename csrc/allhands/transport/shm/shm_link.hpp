// A link through two rings in shared memory, one for each direction, each of which is
// taken when its writer first needs it.
#pragma once

#include <atomic>
#include <optional>

#include "allhands/host/process.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/link.hpp"
#include "allhands/transport/shm/message_memory.hpp"
#include "allhands/transport/shm/shm_single_copy.hpp"

namespace allhands {

// A link through two rings in shared memory, one for each direction.
class ShmLink final : public Link {
 public:
  // `memory` at `base`, of rank `self`; `memory`, `process` and `tuning` must outlive
  // the link.
  ShmLink(const MessageMemory& memory, std::byte* base, int self, int peer,
          const ProcessIdentity& process, const Tuning& tuning)
      : memory_(memory),
        base_(base),
        self_(self),
        peer_(peer),
        doorbell_(memory.doorbell(base, peer)),
        entry_(memory.entry(base, peer, self)),
        sender_(process, tuning),
        receiver_(process, tuning) {}

  std::size_t max_record() override { return out().max_record(); }
  std::byte* reserve(std::size_t bytes) override { return out().reserve(bytes); }
  void commit() override { out_->commit(); }
  void wake_peer() override { doorbell_.ring(); }
  // A peer that has mapped the memory can read it without this process.
  bool is_safe_to_leave() const override {
    return !out_ || out_->is_empty() || doorbell_.is_here.load() != 0;
  }

  bool has_record() const override {
    if (is_in_open_.load(std::memory_order_acquire)) return in_->has_record();
    return entry_.load(std::memory_order_acquire) != 0 &&
           memory_.has_written(base_, peer_, self_);
  }
  std::span<const std::byte> front() override {
    if (!in_ && !open_in()) return {};
    return in_->front();
  }
  void pop() override {
    if (in_->pop()) doorbell_.ring();
  }
  void settle(std::size_t bytes) override { in_->settle(bytes); }
  std::uint64_t settled() const override { return out_ ? out_->settled() : 0; }

  SingleCopySender* single_copy_sender() override { return &sender_; }
  SingleCopyReceiver* single_copy_receiver() override { return &receiver_; }

 private:
  RingWriter& out() {
    if (!out_) open_out();
    return *out_;
  }
  void open_out();
  bool open_in();

  const MessageMemory& memory_;
  std::byte* const base_;
  const int self_;
  const int peer_;
  Doorbell& doorbell_;                 // the peer's
  const MessageMemory::Entry& entry_;  // of the ring that it writes to
  std::optional<RingWriter> out_;
  std::optional<RingReader> in_;
  std::atomic<bool> is_in_open_ = false;
  ShmSender sender_;
  ShmReceiver receiver_;
};

}  // namespace allhands
