#include "allhands/host/caches.hpp"

#include <sys/utsname.h>

#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

bool kernel_copies_past_caches() {
#if defined(__x86_64__)
  unsigned most = 0, start = 0, end = 0, middle = 0;
  if (__get_cpuid(0, &most, &start, &end, &middle) == 0) return false;
  return start == signature_AMD_ebx && middle == signature_AMD_edx &&
         end == signature_AMD_ecx;
#else
  return false;
#endif
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
