// A transport made of two: one between the ranks of this host and one to all others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "allhands/transport/transport.hpp"

namespace allhands {

// A transport made of two. A thread that waits sleeps on the one between the ranks of
// this host, so the other has to wake that one for each of its events.
class RoutedTransport final : public Transport {
 public:
  // `local` numbers its ranks from 0: they are `ranks` of the group of `size`, in this
  // order. `remote` uses group ranks, calls wake_self() of `local` for each of its
  // events, and is never asked for a link to one of `ranks`.
  RoutedTransport(std::unique_ptr<Transport> local, const std::vector<int>& ranks,
                  int size, std::unique_ptr<Transport> remote);

  Link& link(int peer) override {
    const int local = local_rank(peer);
    return local < 0 ? remote_->link(peer) : local_->link(local);
  }
  std::span<const int> ready() override;

  std::uint32_t num_events() override {
    return local_->num_events() + remote_->num_events();
  }
  // Anything that comes from another host after the first line is an event of `local`
  // too.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) override {
    remote_->stop_looking();
    const std::uint32_t remote = remote_->num_events();
    local_->sleep(seen - remote, limit);
  }
  void wake_self() override { local_->wake_self(); }
  Placement* placement() override { return local_->placement(); }

  Presence presence(int peer) const override {
    const int local = local_rank(peer);
    return local < 0 ? remote_->presence(peer) : local_->presence(local);
  }
  bool is_alive(int peer) const override {
    const int local = local_rank(peer);
    return local < 0 ? remote_->is_alive(peer) : local_->is_alive(local);
  }
  bool has_died(int peer) override {
    const int local = local_rank(peer);
    return local < 0 ? remote_->has_died(peer) : local_->has_died(local);
  }
  bool was_alive_lately(int peer) override {
    const int local = local_rank(peer);
    return local < 0 ? remote_->was_alive_lately(peer)
                     : local_->was_alive_lately(local);
  }
  bool has_aborted() const override {
    return local_->has_aborted() || remote_->has_aborted();
  }
  std::string end_of(int peer) const override {
    const int local = local_rank(peer);
    return local < 0 ? remote_->end_of(peer) : local_->end_of(local);
  }
  std::optional<Error> abort_reason(int peer) const override {
    const int local = local_rank(peer);
    return local < 0 ? remote_->abort_reason(peer) : local_->abort_reason(local);
  }
  void leave(Presence how, const Error& why) override;

 private:
  // Returns -1 for a peer on another host.
  int local_rank(int peer) const {
    return local_ranks_[static_cast<std::size_t>(peer)];
  }

  const std::unique_ptr<Transport> local_;
  const std::unique_ptr<Transport> remote_;  // ends first, as it wakes the other
  const std::vector<int> ranks_;
  std::vector<int> local_ranks_;  // by rank of the group
  std::vector<int> ready_;
};

}  // namespace allhands
