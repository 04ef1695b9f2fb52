// Where on the host a rank runs: which CPUs share a cache, and which a socket.
#pragma once

#include <cstdint>
#include <string>

namespace allhands {

// The socket and the cache that the CPUs of a rank share. Numbers from 1 on; 0: they
// share none.
struct Place {
  std::uint16_t socket = 0;
  std::uint16_t cache = 0;  // that of the last level, within the host

  bool operator==(const Place&) const = default;
};

// What the CPUs that this thread may run on have in common, as `folder` tells, the
// kernel's description of the CPUs.
Place place_of_this_thread(const std::string& folder = "/sys/devices/system/cpu");

// The same of this host, looked up once as long as those CPUs stay the same.
Place place_here();

}  // namespace allhands
