#include "allhands/host/caches.hpp"

#include <sys/utsname.h>

#include <fstream>

namespace allhands {

std::uint64_t last_cache_bytes(int cpu) {
  const std::string caches =
      "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index";
  int last = 0;
  std::uint64_t bytes = 0;
  for (int i = 0;; ++i) {
    const std::string index = caches + std::to_string(i);
    int level = 0;
    if (!(std::ifstream(index + "/level") >> level)) return bytes;
    std::uint64_t size = 0;
    char unit = 0;
    if (level < last || !(std::ifstream(index + "/size") >> size >> unit)) continue;
    last = level;
    bytes = unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : 0;
  }
}

std::string cpu_model() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    const std::size_t value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos)
      return line.substr(value + 2);
  }
  utsname system;
  return uname(&system) == 0 ? system.machine : "unknown";
}

}  // namespace allhands
