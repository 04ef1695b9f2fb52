#include "allhands/net/address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "allhands/base/error.hpp"
#include "allhands/base/start_thread.hpp"

namespace allhands {
namespace {

struct Lookup {
  std::mutex mutex;
  std::condition_variable finished;
  bool is_done = false;
  std::vector<Address> found;
  std::string problem;
};

int get_addresses(const std::string& host, std::uint16_t port, int flags,
                  std::vector<Address>& found) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int code =
      ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) return code;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next)
    found.emplace_back(entry->ai_addr, entry->ai_addrlen);
  ::freeaddrinfo(list);
  return 0;
}

void look_up(const std::string& host, std::uint16_t port, Lookup& lookup) {
  std::vector<Address> found;
  const int code = get_addresses(host, port, 0, found);
  const std::scoped_lock lock(lookup.mutex);
  lookup.found = std::move(found);
  if (code != 0) lookup.problem = ::gai_strerror(code);
  lookup.is_done = true;
  lookup.finished.notify_all();
}

// Returns false if the limits ended first.
bool wait_finished(Lookup& lookup, const Limits& limits) {
  std::unique_lock lock(lookup.mutex);
  return Wait(limits).sleep_on(lookup.finished, lock,
                               [&lookup] { return lookup.is_done; }) == WaitEnd::None;
}

}  // namespace

Address::Address(const sockaddr* address, socklen_t size) : size_(size) {
  std::memcpy(&storage_, address, size);
}

std::uint16_t Address::port() const {
  return ntohs(family() == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

void Address::set_port(std::uint16_t port) {
  if (family() == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
}

bool Address::is_any_ipv6() const {
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

bool Address::is_loopback() const {
  constexpr std::uint8_t kLoopback = 127;
  if (family() != AF_INET6) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
    return ntohl(v4->sin_addr.s_addr) >> 24 == kLoopback;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kLoopback);
}

std::string Address::host() const {
  char host[NI_MAXHOST] = "?";
  ::getnameinfo(data(), size_, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

std::optional<Address> literal_address(const std::string& host, std::uint16_t port) {
  std::vector<Address> found;
  if (get_addresses(host, port, AI_NUMERICHOST, found) != 0 || found.empty())
    return std::nullopt;
  return found.front();
}

std::vector<Address> resolve(const std::string& host, std::uint16_t port,
                             const Limits& limits, std::string& problem) {
  if (const auto literal = literal_address(host, port)) return {*literal};
  const auto lookup = std::make_shared<Lookup>();
  start_thread([lookup, host, port] { look_up(host, port, *lookup); }).detach();
  if (!wait_finished(*lookup, limits)) {
    problem = "the name look-up did not end";
    return {};
  }
  problem = lookup->problem;
  return lookup->found;
}

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace allhands
