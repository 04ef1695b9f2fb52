// Which process listens on a TCP port of this host, as far as /proc shows it.
#pragma once

#include <cstdint>
#include <string>

namespace allhands {

// "process 4711 (python train.py)"; empty if it is not visible (another user's process,
// another container).
std::string describe_port_owner(std::uint16_t port);

}  // namespace allhands
