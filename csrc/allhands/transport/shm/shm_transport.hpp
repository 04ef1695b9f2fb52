// The transport between ranks of one host: rings in the group's segment, doorbells that
// are futex words, and single copies by system calls. What two ranks need to
// communicate is made when one of them first writes.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "allhands/base/shared_memory.hpp"
#include "allhands/host/membership.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/shm/message_memory.hpp"
#include "allhands/transport/shm/shm_link.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

// The transport between ranks of one host.
class ShmTransport final : public Transport {
 public:
  // How many bytes it needs in the segment of a group of `size`; they must be zero at
  // first.
  static std::size_t memory_bytes(int size) {
    return MessageMemory(size).total_bytes();
  }

  // `base`: where these bytes are in `memory`. Peers see that this rank is here.
  // `has_departed` tells which ranks left without ever having been here.
  ShmTransport(std::shared_ptr<SharedMemory> memory, std::byte* base,
               const Membership& membership, const Tuning& tuning,
               HasDeparted has_departed = {});
  ~ShmTransport() override;

  // May be called from any thread.
  Link& link(int peer) override {
    ShmLink* const made =
        links_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire);
    return made != nullptr ? *made : make_link(peer);
  }
  // A doorbell does not tell who rang it, so this returns all peers that ever wrote.
  std::span<const int> ready() override {
    const std::uint32_t num = doorbell_.num_writers.load(std::memory_order_acquire);
    if (num != seen_writers_) find_writers(num);
    return writers_;
  }
  std::uint32_t num_events() override {
    return doorbell_.count.load(std::memory_order_seq_cst) +
           head_.num_changes.load(std::memory_order_seq_cst);
  }
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) override;
  void wake_self() override { doorbell_.ring(); }
  Placement* placement() override { return &placement_; }
  Presence presence(int peer) const override;
  bool is_alive(int peer) const override {
    return allhands::is_alive(membership_.process(peer));
  }
  bool was_alive_lately(int peer) override;
  bool has_died(int peer) override;
  bool has_aborted() const override {
    return head_.num_aborted.load(std::memory_order_acquire) != 0;
  }
  // The arena has what broke the group, so `why` is not needed here.
  void leave(Presence how, const Error& why) override;

 private:
  Doorbell& doorbell(int rank) const { return layout_.doorbell(base_, rank); }
  ShmLink& make_link(int peer);
  void find_writers(std::uint32_t num);
  void tell_change();

  const std::shared_ptr<SharedMemory> memory_;
  std::byte* const base_;
  const Membership membership_;
  const Tuning tuning_;
  const HasDeparted has_departed_;
  const MessageMemory layout_;
  MessageMemory::Head& head_;
  Doorbell& doorbell_;  // this rank's
  Placement placement_;
  std::vector<std::atomic<ShmLink*>> links_;  // owned; null before their first use
  std::vector<int> writers_;                  // ranks that have taken a ring to this
  std::vector<bool> is_writer_;
  std::uint32_t seen_writers_ = 0;
};

}  // namespace allhands
