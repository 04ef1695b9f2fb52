// The transport between ranks of one host: rings in the group's segment, doorbells that
// are futex words, and single copies by system calls.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "allhands/base/shared_memory.hpp"
#include "allhands/host/membership.hpp"
#include "allhands/host/tuning.hpp"
#include "allhands/transport/shm/message_memory.hpp"
#include "allhands/transport/shm/shm_link.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

class ShmTransport final : public Transport {
 public:
  // What it takes of the segment of a group of `size`; zero at first.
  static std::size_t memory_bytes(int size) {
    return MessageMemory(size).total_bytes();
  }

  // `base`: where these bytes are in `memory`. Peers see that this rank is here.
  ShmTransport(std::shared_ptr<SharedMemory> memory, std::byte* base,
               const Membership& membership, const Tuning& tuning);

  Link& link(int peer) override { return links_[static_cast<std::size_t>(peer)]; }
  // A doorbell does not tell who rang: all.
  std::span<const int> ready() override { return ranks_; }
  std::uint32_t num_events() override {
    return doorbell_.count.load(std::memory_order_seq_cst);
  }
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) override {
    doorbell_.sleep(seen, limit);
  }
  void wake_self() override { doorbell_.ring(); }
  Placement* placement() override { return &placement_; }
  Presence presence(int peer) const override;
  bool is_alive(int peer) const override {
    return allhands::is_alive(membership_.process(peer));
  }
  void leave(Presence how) override;

 private:
  Doorbell& doorbell(int rank) const { return layout_.doorbell(base_, rank); }
  void ring_all();

  const std::shared_ptr<SharedMemory> memory_;
  std::byte* const base_;
  const Membership membership_;
  const Tuning tuning_;
  const MessageMemory layout_;
  Doorbell& doorbell_;  // this rank's
  Placement placement_;
  std::deque<ShmLink> links_;
  std::vector<int> ranks_;
};

}  // namespace allhands
