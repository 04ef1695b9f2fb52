// Sockets that listen where they were asked to, and nowhere else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/net/address.hpp"

namespace allhands {

// Whether `host`, which means `addresses` here, is the name of this machine that others
// know, and means only the loopback here, as Debian has it (127.0.1.1).
bool is_own_name_for_loopback(const std::string& host,
                              const std::vector<Address>& addresses);

// One socket per address that `host` stands for on this machine ("localhost" may be
// 127.0.0.1 and ::1; "0.0.0.0" and "::" are all), all on one port; port 0 picks one.
// Where its own name means the loopback, it stands for the machine's other addresses,
// too, since these are what it means elsewhere.
// Throws Error(Network) where the port is taken, naming its owner where that is
// visible, and where `host` is no address of this machine.
std::vector<Fd> listen_on(const std::string& host, std::uint16_t port,
                          const Limits& limits);

// Takes over a bound TCP socket; checks that its port is `port`, where that is not 0.
Fd adopt_listener(int fd, std::uint16_t port);

}  // namespace allhands
