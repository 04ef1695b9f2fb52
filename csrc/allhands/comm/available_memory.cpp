#include "allhands/comm/available_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

// proc_meminfo(5)
std::size_t left_on_this_host() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::size_t kilobytes, total = 0;
  bool is_known = false;
  while (file >> name >> kilobytes) {
    std::getline(file, unit);
    is_known |= name == "MemAvailable:";
    if (name == "MemAvailable:" || name == "SwapFree:") total += kilobytes << 10;
  }
  return is_known ? total : kUnlimited;
}

// cgroups(7): the limit of this process's group, version 2; "max" is none. A group's
// own directory may be the root of that file system, as in a container.
std::size_t limit_of_control_group() {
  std::ifstream membership("/proc/self/cgroup");
  std::size_t limit = kUnlimited;
  for (std::string line; std::getline(membership, line);) {
    if (!line.starts_with("0::/")) continue;
    for (const std::string& folder : {std::string(), line.substr(3)}) {
      std::ifstream file("/sys/fs/cgroup" + folder + "/memory.max");
      if (std::size_t bytes; file >> bytes) limit = std::min(limit, bytes);
    }
  }
  return limit;
}

std::string gib(std::size_t bytes) {
  const std::size_t tenths = (bytes >> 20) * 10 >> 10;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

}  // namespace

void check_available_memory(std::size_t bytes) {
  const std::size_t left = left_on_this_host(), limit = limit_of_control_group();
  if (bytes > left)
    throw Error(
        ErrorKind::Backend,
        "needs " + gib(bytes) + " of memory, this host has " + gib(left) + " left");
  if (bytes > limit)
    throw Error(ErrorKind::Backend, "needs " + gib(bytes) +
                                        " of memory, the limit of this control group "
                                        "(memory.max) is " +
                                        gib(limit));
}

}  // namespace allhands
