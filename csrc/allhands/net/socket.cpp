#include "allhands/net/socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <chrono>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

// The kernel's limit (net.core.somaxconn, 4096 by default): thousands of ranks connect
// at the same moment.
constexpr int kBacklog = 4096;

Fd make_socket(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

// An option of Linux 6.15 and newer, which the headers may not have yet. After a cut
// the kernel sends again at intervals that double each time. So a cut of 3 s could end
// unnoticed until 6 s had passed, and the peer would wrongly count as silent.
constexpr int kTcpRtoMaxMs = 44;
constexpr int kLongestRetryMs = 1000;

bool set_option(int socket, int level, int name, int value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

Fd fail(int code) {
  errno = code;
  return Fd();
}

// Polls until something is ready. Returns false if the limits ended first.
bool poll_until(pollfd* entries, nfds_t count, const Limits& limits) {
  const Wait wait(limits);
  while (true) {
    const auto slice = std::chrono::ceil<std::chrono::milliseconds>(wait.slice());
    const int ready = ::poll(entries, count, static_cast<int>(slice.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR)
      throw system_error(ErrorKind::Network, "poll", errno);
    if (wait.look() != WaitEnd::None) return false;
  }
}

}  // namespace

Fd listen_at(const Address& address) {
  Fd socket = make_socket(address.family());
  if (!socket.is_open()) return socket;
  // Allows the port of a server that has just ended (TIME_WAIT), but not one in use.
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6)
    set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, address.is_any_ipv6() ? 0 : 1);
  if (::bind(socket.get(), address.data(), address.size()) != 0) return fail(errno);
  if (::listen(socket.get(), kBacklog) != 0) return fail(errno);
  return socket;
}

int connection_error(int socket) {
  int code = 0;
  socklen_t size = sizeof code;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size);
  return code;
}

Fd start_connecting(const Address& address, int& code) {
  Fd socket = make_socket(address.family());
  code = socket.is_open() ? 0 : errno;
  if (code == 0 && ::connect(socket.get(), address.data(), address.size()) != 0 &&
      errno != EINPROGRESS)
    code = errno;
  return code == 0 ? std::move(socket) : Fd();
}

Fd connect_to(const Address& address, const Limits& limits, std::string& problem) {
  int code = 0;
  Fd socket = start_connecting(address, code);
  if (code == EMFILE)  // waiting for the peer would not help
    throw system_error(ErrorKind::Network, "connect to " + address.text(), code);
  if (code == 0)
    code = wait_ready(socket.get(), Direction::Write, limits)
               ? connection_error(socket.get())
               : ETIMEDOUT;
  if (code != 0) {
    problem = address.text() + ": " + errno_text(code);
    return Fd();
  }
  tune(socket.get());
  return socket;
}

Fd accept_from(int listener) {
  return Fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

Address local_address(int socket) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0)
    throw system_error(ErrorKind::Network, "getsockname", errno);
  return Address(reinterpret_cast<const sockaddr*>(&storage), size);
}

void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Seconds of silence before probes.
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);  // seconds between probes
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, kTcpRtoMaxMs, kLongestRetryMs);
}

bool wait_ready(int fd, Direction direction, const Limits& limits) {
  pollfd entry = {
      fd, static_cast<short>(direction == Direction::Read ? POLLIN : POLLOUT), 0};
  return poll_until(&entry, 1, limits);
}

bool is_connected(int socket) {
  pollfd entry = {socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) == 0;
}

void wait_until(const Limits& limits) { poll_until(nullptr, 0, limits); }

}  // namespace allhands
