// The network interfaces of this machine, and which of their addresses reaches a host.
#pragma once

#include <string>
#include <vector>

#include "allhands/base/wait.hpp"
#include "allhands/net/address.hpp"

namespace allhands {

// One address of a network interface, which may have several.
struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.0.0.3", "fe80::1%eth0"
  int prefix_length = 0;  // number of bits that the addresses of its network share
  bool is_up = false;     // it is switched on and connected
  bool is_loopback = false;
};

// In the system's order. Throws Error(Network).
std::vector<InterfaceAddress> interface_addresses();

// The addresses of this machine from which packets to `host` are sent: one for each
// address that this name or literal stands for and that has a route. Sends nothing,
// except to look up a name. Throws Interrupted.
std::vector<std::string> addresses_towards(const std::string& host,
                                           const Limits& limits);

}  // namespace allhands
