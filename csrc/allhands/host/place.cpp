#include "allhands/host/place.hpp"

#include <sched.h>

#include <fstream>
#include <optional>
#include <utility>
#include <vector>

namespace allhands {
namespace {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

std::optional<int> number_in(const std::string& path) {
  int number = 0;
  if (!(std::ifstream(path) >> number)) return std::nullopt;
  return number;
}

// The first CPU that shares the last cache of `cpu`; its number stands for the cache.
std::optional<int> cache_of(const std::string& cpu) {
  std::optional<int> first;
  for (int i = 0; const auto shared = number_in(cpu + "/cache/index" +
                                                std::to_string(i) + "/shared_cpu_list");
       ++i)
    first = shared;
  return first;
}

// The number that all CPUs have in common; 0 if a CPU has none, or two differ.
class Common {
 public:
  void add(std::optional<int> number) {
    const int next = number.value_or(-1) + 1;
    value_ = value_ == kUnknown || value_ == next ? next : 0;
  }
  // Whether this will stay 0, whatever is added.
  bool is_none() const { return value_ == 0; }
  std::uint16_t value() const {
    return value_ <= 0 || value_ > UINT16_MAX ? 0 : static_cast<std::uint16_t>(value_);
  }

 private:
  static constexpr int kUnknown = -1;
  int value_ = kUnknown;
};

}  // namespace

Place place_of_this_thread(const std::string& folder) {
  Common socket, cache;
  for (const int number : allowed_cpus()) {
    const std::string cpu = folder + "/cpu" + std::to_string(number);
    socket.add(number_in(cpu + "/topology/physical_package_id"));
    if (socket.is_none()) return {};
    if (!cache.is_none()) cache.add(cache_of(cpu));
  }
  return {socket.value(), cache.value()};
}

Place place_here() {
  // Per thread, as each thread has its own CPUs; a lock would trouble forked children.
  thread_local std::vector<int> cpus;
  thread_local Place place;
  if (std::vector<int> now = allowed_cpus(); now != cpus) {
    place = place_of_this_thread();
    cpus = std::move(now);
  }
  return place;
}

}  // namespace allhands
