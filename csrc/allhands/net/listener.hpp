// Sockets that listen only where they were asked to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/net/address.hpp"

namespace allhands {

// Whether `host`, which stands for `addresses` here, is the name by which others know
// this machine but stands only for the loopback here, as on Debian (127.0.1.1).
bool is_own_name_for_loopback(const std::string& host,
                              const std::vector<Address>& addresses);

// One socket per address that `host` stands for on this machine ("localhost" may be
// 127.0.0.1 and ::1; "0.0.0.0" and "::" are all), all on one port; with port 0 the
// system picks it. If the machine's own name stands for the loopback here, the
// machine's other addresses are included, as these are what the name means elsewhere.
// Throws Error(Network) if the port is taken, naming its owner if that is visible, and
// if `host` is no address of this machine.
std::vector<Fd> listen_on(const std::string& host, std::uint16_t port,
                          const Limits& limits);

// Takes over a bound TCP socket. Checks that its port is `port`, unless that is 0.
Fd adopt_listener(int fd, std::uint16_t port);

}  // namespace allhands
