// Sockets that listen where they were asked to, and nowhere else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allhands/base/fd.hpp"
#include "allhands/base/wait.hpp"

namespace allhands {

// One socket per address that `host` stands for on this machine ("localhost" may be
// 127.0.0.1 and ::1; "0.0.0.0" and "::" are all), all on one port; port 0 picks one.
// Throws Error(Network) where the port is taken, naming its owner where that is
// visible, and where `host` is no address of this machine.
std::vector<Fd> listen_on(const std::string& host, std::uint16_t port,
                          const Limits& limits);

// Takes over a bound TCP socket; checks that its port is `port`, where that is not 0.
Fd adopt_listener(int fd, std::uint16_t port);

}  // namespace allhands
