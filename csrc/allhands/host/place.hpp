// Where on the host a rank runs: which CPUs share a cache, and which share a socket.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>

namespace allhands {

// The socket and the cache that the CPUs of a rank share. Numbers start at 1; 0: the
// CPUs share none.
struct Place {
  std::uint16_t socket = 0;
  std::uint16_t cache = 0;  // the last-level cache, numbered within the host

  bool operator==(const Place&) const = default;
};

// What the CPUs that this thread may run on have in common. `folder` holds the kernel's
// description of the CPUs.
Place place_of_this_thread(const std::string& folder = "/sys/devices/system/cpu");

// What one rank has looked up, for others that may run on the same CPUs. In shared
// memory; zero: nobody has.
struct KnownPlace {
  cpu_set_t cpus;
  Place place;

  // Looks up where this thread runs, which takes 70 us and more for each CPU; again
  // only if its CPUs have changed.
  static KnownPlace look_up();
};

// Where this thread runs; looked up only if `known` is of other CPUs.
Place place_here(const KnownPlace& known);

}  // namespace allhands
