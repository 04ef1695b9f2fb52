// The address of a socket: an IPv4 or IPv6 address and a port.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allhands/base/wait.hpp"

namespace allhands {

// "host:4471", "[::1]:4471": an endpoint as a user writes it.
std::string endpoint_text(const std::string& host, std::uint16_t port);

class Address {
 public:
  Address(const sockaddr* address, socklen_t size);

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  // Whether it is the IPv6 wildcard, which stands for IPv4 too.
  bool is_any_ipv6() const;
  // Whether it is in 127.0.0.0/8 or ::1, also in IPv6's notation of IPv4.
  bool is_loopback() const;
  // "10.0.0.3", "::1" or "fe80::1%eth0"
  std::string host() const;
  // "10.0.0.3:4471" or "[::1]:4471"
  std::string text() const { return endpoint_text(host(), port()); }

 private:
  sockaddr_storage storage_ = {};
  socklen_t size_ = 0;
};

// The address that `host` denotes if it is a literal; no name is looked up.
std::optional<Address> literal_address(const std::string& host, std::uint16_t port);

// Every address of `host`, in the system's order of preference. `host` may be a literal
// ("10.0.0.3", "::1", "fe80::1%eth0"), which is never looked up. Empty if the name is
// unknown, with the system's message in `problem`. A look-up cannot be cancelled, so it
// runs in a thread of its own; an interrupt or the deadline ends only the wait.
std::vector<Address> resolve(const std::string& host, std::uint16_t port,
                             const Limits& limits, std::string& problem);

}  // namespace allhands
