// A group's transport to its ranks on other hosts: a channel on the connection to each
// rank.
//
// A rank joins its channel to a peer when it first sends to the peer or asks for its
// state.
// Only then is the connection made, and only then does the peer tell that it has left.
#pragma once

#include <atomic>
#include <initializer_list>
#include <memory>
#include <vector>

#include "allhands/host/membership.hpp"
#include "allhands/transport/tcp/group_events.hpp"
#include "allhands/transport/tcp/port_loop.hpp"
#include "allhands/transport/tcp/self_link.hpp"
#include "allhands/transport/tcp/tcp_link.hpp"
#include "allhands/transport/transport.hpp"

namespace allhands {

// A group's transport to its ranks on other hosts.
class TcpTransport final : public Transport {
 public:
  // `channel`: the group's number on every connection.
  TcpTransport(std::shared_ptr<PortLoop> loop, const Membership& membership,
               std::uint64_t channel, GroupEvents::Hook on_event);
  ~TcpTransport() override;

  // May be called from any thread.
  Link& link(int peer) override;
  std::span<const int> ready() override;
  std::uint32_t num_events() override { return events_->count(); }
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit) override {
    stop_looking();
    events_->sleep(seen, limit);
  }
  void stop_looking() override;
  void wake_self() override { events_->tell(); }

  Presence presence(int peer) const override;
  bool is_alive(int peer) const override;
  std::string end_of(int peer) const override;
  bool has_aborted() const override { return events_->has_aborted(); }
  std::optional<Error> abort_reason(int peer) const override;
  void leave(Presence how, const Error& why) override;

 private:
  // All null for this rank, and for one that listens nowhere.
  struct Peer {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<Channel> channel;
    std::unique_ptr<TcpLink> link;
    std::atomic<bool> is_joined = false;
  };

  Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  Peer& joined(int rank) const;
  std::vector<int> in_state(std::initializer_list<Connection::State> states) const;
  std::vector<int> connected() const;
  std::vector<int> reached_by_abort() const;

  const std::shared_ptr<PortLoop> loop_;
  const Membership membership_;
  const std::uint64_t channel_;
  const std::shared_ptr<GroupEvents> events_;
  const std::unique_ptr<Peer[]> peers_;  // by rank
  SelfLink self_link_;
  std::vector<int> writers_;
  std::atomic<Presence> presence_ = Presence::Here;
};

}  // namespace allhands
