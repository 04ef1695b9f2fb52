#include "allhands/net/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "allhands/base/error.hpp"
#include "allhands/base/fd.hpp"
#include "allhands/net/socket.hpp"

namespace allhands {
namespace {

// The port of a datagram that is never sent: the discard service.
constexpr std::uint16_t kAnyPort = 9;

struct FreeList {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

socklen_t size_of(int family) {
  return family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

int num_ones(const std::uint8_t* bytes, std::size_t count) {
  int ones = 0;
  for (std::size_t i = 0; i < count; ++i) ones += std::popcount(bytes[i]);
  return ones;
}

int prefix_length(const sockaddr* mask, int family) {
  if (mask == nullptr) return 0;
  if (family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(mask);
    return num_ones(v6->sin6_addr.s6_addr, sizeof v6->sin6_addr);
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(mask);
  return std::popcount(v4->sin_addr.s_addr);
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    throw system_error(ErrorKind::Network, "getifaddrs", errno);
  const std::unique_ptr<ifaddrs, FreeList> list(first);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const Address address(each->ifa_addr, size_of(family));
    found.push_back({
        .interface = each->ifa_name,
        .address = address.host(),
        .prefix_length = prefix_length(each->ifa_netmask, family),
        .is_up = (each->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING),
        .is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0,
    });
  }
  return found;
}

std::vector<std::string> addresses_towards(const std::string& host,
                                           const Limits& limits) {
  std::vector<std::string> found;
  std::string problem;
  for (const Address& target : resolve(host, kAnyPort, limits, problem)) {
    const Fd socket(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.is_open() && ::connect(socket.get(), target.data(), target.size()) == 0)
      found.push_back(local_address(socket.get()).host());
  }
  return found;
}

}  // namespace allhands
