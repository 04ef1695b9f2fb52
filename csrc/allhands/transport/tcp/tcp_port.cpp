#include "allhands/transport/tcp/tcp_port.hpp"

#include <unistd.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/joined.hpp"
#include "allhands/net/listener.hpp"
#include "allhands/net/openssl.hpp"
#include "allhands/net/sha256.hpp"
#include "allhands/net/socket.hpp"
#include "allhands/transport/tcp/port_loop.hpp"
#include "allhands/transport/tcp/tcp_transport.hpp"

namespace allhands {
namespace {

constexpr std::chrono::milliseconds kLeastSilence{100};

Fd listen_at_port(const std::string& host, std::uint16_t port) {
  const auto address = literal_address(host, port);
  if (!address)
    throw Error(ErrorKind::Value, "'" + host +
                                      "' is no IP address; a process listens for ranks "
                                      "of other hosts at addresses of this machine");
  return listen_at(*address);
}

// Listens on each of `hosts` at `port`, or if that is 0 at a port that the system picks
// for the first one. Returns nothing, with errno set, if the port is taken on one of
// them.
std::vector<Fd> listen_at_each(const std::vector<std::string>& hosts,
                               std::uint16_t port) {
  std::vector<Fd> sockets;
  for (const std::string& host : hosts) {
    Fd socket = listen_at_port(host, port);
    if (!socket.is_open() && errno == EADDRINUSE) return {};
    if (!socket.is_open())
      throw system_error(ErrorKind::Network, "listen at " + endpoint_text(host, port),
                         errno);
    port = local_address(socket.get()).port();
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

std::vector<Fd> listen_in_range(const std::vector<std::string>& hosts,
                                std::uint16_t first, std::uint16_t last) {
  // The port that the system picks for the first host may be taken on another one.
  constexpr int kMaxPicks = 16;
  const int attempts = first == 0 ? kMaxPicks : last - first + 1;
  for (int i = 0; i < attempts; ++i) {
    const int port = first == 0 ? 0 : first + i;
    std::vector<Fd> sockets = listen_at_each(hosts, static_cast<std::uint16_t>(port));
    if (!sockets.empty()) return sockets;
  }
  throw Error(ErrorKind::Network,
              "no port of [" + std::to_string(first) + ", " + std::to_string(last) +
                  "] is free to listen at for ranks of other hosts; give more ports "
                  "than the processes of this host need, or none for any");
}

}  // namespace

TcpPort::TcpPort(const std::vector<std::string>& hosts, std::uint16_t first,
                 std::uint16_t last, const Options& options)
    : owner_(::getpid()), options_(options) {
  if (options.is_encrypted) OpenSsl::loaded();
  if (options.is_encrypted && options.ucx != UcxUse::No)
    throw Error(
        ErrorKind::Value,
        "UCX encrypts nothing: set ALLHANDS_TRANSPORT=tcp, or unset ALLHANDS_TLS");
  if (hosts.empty() || (first == 0) != (last == 0) || first > last)
    throw Error(ErrorKind::Value, "a port needs a host and a range of ports, got " +
                                      std::to_string(hosts.size()) +
                                      " hosts and ports [" + std::to_string(first) +
                                      ", " + std::to_string(last) + "]");
  if (options.silence < kLeastSilence)
    throw Error(ErrorKind::Value, "the heartbeat limit must be at least 0.1 s");
  if (options.num_sockets == 0 || options.num_sockets > kMostSockets)
    throw Error(ErrorKind::Value, "a port uses 1 to " + std::to_string(kMostSockets) +
                                      " sockets to each peer, got " +
                                      std::to_string(options.num_sockets));
  std::vector<Fd> listeners = listen_in_range(hosts, first, last);
  const std::uint16_t own = local_address(listeners.front().get()).port();
  if (options.advertised.empty())
    for (const std::string& host : hosts)
      endpoints_.push_back(endpoint_text(host, own));
  for (const auto& [host, port] : options.advertised)
    endpoints_.push_back(endpoint_text(host, port != 0 ? port : own));
  std::string all;
  for (const std::string& endpoint : endpoints_)
    all += (all.empty() ? "" : ",") + endpoint;
  const ProcessIdentity self = this_process();
  if (options.ucx != UcxUse::No) worker_ = UcxWorker::make();
  loop_ = std::make_shared<PortLoop>(std::move(listeners),
                                     name_of(all, self.pid, self.start),
                                     options.silence, options.rail, worker_);
}

TcpPort::~TcpPort() {
  // A forked child has no such thread, and its copy of the memory may be in mid-change;
  // so this copy is leaked.
  if (::getpid() != owner_) {
    new std::shared_ptr<PortLoop>(loop_);
    new std::shared_ptr<UcxWorker>(worker_);
  } else {
    close();
  }
}

void TcpPort::start(const Secret& secret, Say say) {
  check_owner();
  if (std::exchange(is_started_, true))
    throw Error(ErrorKind::Value, "this port was started before");
  // One socket carries everything; several have one beside them for the rest.
  loop_->start({{reinterpret_cast<const char*>(secret.data()), secret.size()},
                options_.is_encrypted,
                worker_ == nullptr ? "" : worker_->address(),
                options_.ucx == UcxUse::Needed,
                options_.num_sockets == 1 ? 0 : options_.num_sockets},
               std::move(say));
}

std::unique_ptr<Transport> TcpPort::join(const Membership& membership,
                                         const GroupToken& group, const Tuning&,
                                         std::function<void()> on_event) {
  check_owner();
  std::string text = "allhands channel";
  text.append(reinterpret_cast<const char*>(group.data()), group.size());
  const Digest digest = sha256(text);
  std::uint64_t channel;
  std::memcpy(&channel, digest.data(), sizeof(channel));
  return std::make_unique<TcpTransport>(loop_, membership, channel,
                                        std::move(on_event));
}

bool TcpPort::break_socket(const ProcessIdentity& peer) {
  check_owner();
  return loop_->break_socket(name_of(peer.endpoints, peer.pid, peer.start));
}

std::uint64_t TcpPort::num_sent_by_ucx() const {
  return worker_ == nullptr ? 0 : worker_->num_sent();
}

void TcpPort::check_owner() const {
  if (::getpid() != owner_)
    throw Error(ErrorKind::Backend,
                "this port belongs to the process that forked this one: a forked child "
                "is no rank, and reaches nobody through it");
}

void TcpPort::close() {
  if (::getpid() == owner_) loop_->close();
}

}  // namespace allhands
