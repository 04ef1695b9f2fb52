#include "allhands/net/listener.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "allhands/base/error.hpp"
#include "allhands/net/address.hpp"
#include "allhands/net/interfaces.hpp"
#include "allhands/net/port_owner.hpp"
#include "allhands/net/socket.hpp"

namespace allhands {
namespace {

// With port 0 the first address gets a free port, which may be taken on another
// address.
constexpr int kMaxPicks = 16;

// Torch's words; a name may stand for several addresses.
constexpr char kFailed[] =
    "The server socket has failed to listen on any local network address for ";

Error port_taken(const std::string& host, std::uint16_t port) {
  const std::string owner = describe_port_owner(port);
  return Error(ErrorKind::Network,
               kFailed + endpoint_text(host, port) +
                   ": EADDRINUSE, address already in use" +
                   (owner.empty() ? " by a process that is not visible from here"
                                  : " by " + owner) +
                   ". Take another port (MASTER_PORT, --master-port), or port 0 to get "
                   "a free one");
}

Error cannot_listen(const std::string& host, std::uint16_t port, int code) {
  const std::string remedy =
      code == EADDRNOTAVAIL ? ". It is no address of this machine; the process that "
                              "hosts the server has to run where the address is"
                            : "";
  return Error(ErrorKind::Network,
               kFailed + endpoint_text(host, port) + ": " + errno_text(code) + remedy);
}

bool is_literal(const std::string& host) {
  return host.find(':') != std::string::npos ||
         host.find_first_not_of("0123456789.") == std::string::npos;
}

// Adds the addresses by which other hosts know this machine.
void add_outer_addresses(std::vector<Address>& addresses, std::uint16_t port,
                         const Limits& limits) {
  std::string problem;
  for (const InterfaceAddress& each : interface_addresses())
    if (each.is_up && !each.is_loopback)
      for (const Address& address : resolve(each.address, port, limits, problem))
        addresses.push_back(address);
}

struct Attempt {
  std::vector<Fd> sockets;
  int code = 0;  // why an address got no socket
};

Attempt listen_at_each(std::vector<Address> addresses, std::uint16_t port) {
  Attempt attempt;
  for (Address& address : addresses) {
    address.set_port(port);
    Fd socket = listen_at(address);
    if (socket.is_open()) {
      port = local_address(socket.get()).port();
      attempt.sockets.push_back(std::move(socket));
    } else if (attempt.code != EADDRINUSE) {
      attempt.code = errno;
    }
  }
  return attempt;
}

}  // namespace

bool is_own_name_for_loopback(const std::string& host,
                              const std::vector<Address>& addresses) {
  const std::string localhost = "localhost";
  return !is_literal(host) && host.compare(0, localhost.size(), localhost) != 0 &&
         host != "ip6-localhost" && !addresses.empty() &&
         std::all_of(addresses.begin(), addresses.end(),
                     [](const Address& address) { return address.is_loopback(); });
}

std::vector<Fd> listen_on(const std::string& host, std::uint16_t port,
                          const Limits& limits) {
  std::string problem;
  std::vector<Address> addresses = resolve(host, port, limits, problem);
  if (addresses.empty())
    throw Error(ErrorKind::Network,
                kFailed + endpoint_text(host, port) + ": " + problem);
  if (is_own_name_for_loopback(host, addresses))
    add_outer_addresses(addresses, port, limits);
  Attempt attempt;
  for (int i = 0; i < kMaxPicks; ++i) {
    attempt = listen_at_each(addresses, port);
    // An address that this machine does not have is skipped if there are others.
    if (!attempt.sockets.empty() && attempt.code != EADDRINUSE)
      return std::move(attempt.sockets);
    if (port != 0 || attempt.code != EADDRINUSE) break;
  }
  if (attempt.code == EADDRINUSE) throw port_taken(host, port);
  throw cannot_listen(host, port, attempt.code);
}

Fd adopt_listener(int fd, std::uint16_t port) {
  Fd socket(fd);
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) {
    socket.release();  // not open, so not ours to close
    throw system_error(ErrorKind::Value, "master_listen_fd " + std::to_string(fd),
                       errno);
  }
  const std::uint16_t bound = local_address(fd).port();
  if (port != 0 && bound != port)
    throw Error(ErrorKind::Value, "master_listen_fd " + std::to_string(fd) +
                                      " is bound to port " + std::to_string(bound) +
                                      ", expected " + std::to_string(port));
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (::listen(fd, SOMAXCONN) != 0)
    throw system_error(ErrorKind::Value, "master_listen_fd " + std::to_string(fd),
                       errno);
  return socket;
}

}  // namespace allhands
