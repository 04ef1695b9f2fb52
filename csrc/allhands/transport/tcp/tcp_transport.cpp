#include "allhands/transport/tcp/tcp_transport.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace allhands {
namespace {

// The most processes that are dialled for an abort; at least one of each host is, in
// any case.
constexpr int kMostDialled = 128;

ProcessName name_of(const ProcessIdentity& process) {
  return allhands::name_of(process.endpoints, process.pid, process.start);
}

}  // namespace

TcpTransport::TcpTransport(std::shared_ptr<PortLoop> loop, const Membership& membership,
                           std::uint64_t channel, GroupEvents::Hook on_event)
    : loop_(std::move(loop)),
      membership_(membership),
      channel_(channel),
      events_(std::make_shared<GroupEvents>(std::move(on_event))),
      peers_(std::make_unique<Peer[]>(static_cast<std::size_t>(membership.size()))),
      self_link_(*events_, membership.rank) {
  for (int rank = 0; rank < membership.size(); ++rank) {
    const ProcessIdentity& process = membership.process(rank);
    if (rank == membership.rank || process.endpoints.empty()) continue;
    Peer& each = peer(rank);
    each.connection = loop_->connection(name_of(process));
    each.channel = each.connection->channel(channel);
    each.link = std::make_unique<TcpLink>(each.connection, each.channel);
    each.channel->attach(events_, rank, membership.rank);
  }
}

TcpTransport::~TcpTransport() {
  if (presence_ == Presence::Here)
    leave(Presence::Left, Error(ErrorKind::Backend, "it was destroyed"));
  events_->unhook();
  for (int rank = 0; rank < membership_.size(); ++rank) {
    const Peer& each = peer(rank);
    if (each.connection == nullptr) continue;
    each.channel->detach();
    each.connection->drop_channel(channel_);
  }
}

TcpTransport::Peer& TcpTransport::joined(int rank) const {
  Peer& each = peer(rank);
  if (each.connection == nullptr || each.is_joined.load(std::memory_order_acquire))
    return each;
  if (!each.is_joined.exchange(true))
    each.connection->write(FrameKind::Join, {}, *each.channel);
  return each;
}

Link& TcpTransport::link(int peer) {
  if (peer == membership_.rank) return self_link_;
  const Peer& there = joined(peer);
  if (there.link == nullptr)
    throw Error(ErrorKind::Backend,
                "group " + membership_.quoted() + ": " + membership_.describe(peer) +
                    " listens for no ranks of other hosts, so this process cannot "
                    "reach it");
  return *there.link;
}

std::span<const int> TcpTransport::ready() {
  events_->take_writers(writers_, [this](int rank) {
    if (rank == membership_.rank)
      self_link_.unlist();
    else
      peer(rank).channel->unlist();
  });
  return writers_;
}

void TcpTransport::stop_looking() {
  for (int rank = 0; rank < membership_.size(); ++rank)
    if (peer(rank).is_joined.load(std::memory_order_relaxed))
      peer(rank).connection->give_back();
}

Presence TcpTransport::presence(int peer) const {
  if (peer == membership_.rank) return presence_;
  const Peer& there = joined(peer);
  return there.channel == nullptr ? Presence::Here : there.channel->presence();
}

bool TcpTransport::is_alive(int peer) const {
  if (peer == membership_.rank) return true;
  const Peer& there = joined(peer);
  return there.connection == nullptr ||
         there.connection->state() != Connection::State::Lost;
}

std::string TcpTransport::end_of(int peer) const {
  const Peer& there = this->peer(peer);
  const bool has_left =
      there.channel == nullptr || there.channel->presence() != Presence::Here;
  return has_left ? std::string() : there.connection->reason();
}

std::optional<Error> TcpTransport::abort_reason(int peer) const {
  const Peer& there = this->peer(peer);
  return there.channel == nullptr ? std::nullopt : there.channel->abort_reason();
}

// A rank that has no connection to this one hears of a leave when it asks. All ranks
// hear of an abort at once: some ranks of each host from this rank, the others from
// these.
void TcpTransport::leave(Presence how, const Error& why) {
  const bool is_abort = how == Presence::Aborted;
  Saying saying{how, is_abort ? std::optional<Error>(why) : std::nullopt};
  const std::vector<std::byte> said = saying.encode();
  presence_ = how;
  // This comes first: ranks that join from now on get it as an answer.
  loop_->part(channel_, std::move(saying));
  for (const int rank : is_abort ? reached_by_abort() : connected()) {
    const Peer& each = peer(rank);
    each.connection->write(FrameKind::Presence, said, *each.channel);
  }
  events_->tell();
}

std::vector<int> TcpTransport::in_state(
    std::initializer_list<Connection::State> states) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < membership_.size(); ++rank)
    if (const auto& connection = peer(rank).connection;
        connection != nullptr &&
        std::ranges::find(states, connection->state()) != states.end())
      ranks.push_back(rank);
  return ranks;
}

std::vector<int> TcpTransport::connected() const {
  using enum Connection::State;
  return in_state({Wanted, Up, Broken});
}

// The connected ranks, and those to dial for the abort: of each other host its share of
// what one process may dial.
std::vector<int> TcpTransport::reached_by_abort() const {
  const auto host = [this](int rank) -> const std::string& {
    return membership_.process(rank).host.text();
  };
  std::map<std::string_view, int> num_reached;  // by host
  for (int rank = 0; rank < membership_.size(); ++rank) num_reached[host(rank)] = 0;
  const int num_others = std::max(1, static_cast<int>(num_reached.size()) - 1);
  const int share = std::max(1, kMostDialled / num_others);
  std::vector<int> ranks = connected();
  for (const int rank : ranks) ++num_reached[host(rank)];
  for (const int rank : in_state({Connection::State::Idle}))
    if (host(rank) != host(membership_.rank) && num_reached[host(rank)]++ < share)
      ranks.push_back(rank);
  return ranks;
}

}  // namespace allhands
