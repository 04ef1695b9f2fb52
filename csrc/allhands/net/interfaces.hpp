// The network interfaces of this machine, and which of their addresses leads where.
#pragma once

#include <string>
#include <vector>

#include "allhands/base/wait.hpp"
#include "allhands/net/address.hpp"

namespace allhands {

// One address of a network interface; an interface may have several.
struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.0.0.3", "fe80::1%eth0"
  int prefix_length = 0;  // bits that the addresses of its network share
  bool is_up = false;     // it is switched on, and its cable is in
  bool is_loopback = false;
};

// In the system's order. Throws Error(Network).
std::vector<InterfaceAddress> interface_addresses();

// The address of this machine that what it sends to `host` comes from, for each address
// that this name, or literal, means and that there is a way to. Sends nothing, but for
// the look-up of a name. Throws Interrupted.
std::vector<std::string> addresses_towards(const std::string& host,
                                           const Limits& limits);

}  // namespace allhands
