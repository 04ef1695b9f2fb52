#include "allhands/host/place.hpp"

#include <fstream>
#include <optional>

namespace allhands {
namespace {

// None if they are unknown.
cpu_set_t allowed_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) CPU_ZERO(&cpus);
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
  const cpu_set_t cpus = allowed_cpus();
  Common socket, cache;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (!CPU_ISSET(number, &cpus)) continue;
    const std::string cpu = folder + "/cpu" + std::to_string(number);
    socket.add(number_in(cpu + "/topology/physical_package_id"));
    if (socket.is_none()) return {};
    if (!cache.is_none()) cache.add(cache_of(cpu));
  }
  return {socket.value(), cache.value()};
}

KnownPlace KnownPlace::look_up() {
  // Per thread, as each thread has its own CPUs; a lock would trouble forked children.
  thread_local KnownPlace last = {};
  if (const cpu_set_t cpus = allowed_cpus(); !CPU_EQUAL(&cpus, &last.cpus))
    last = {cpus, place_of_this_thread()};
  return last;
}

Place place_here(const KnownPlace& known) {
  const cpu_set_t cpus = allowed_cpus();
  return CPU_EQUAL(&cpus, &known.cpus) ? known.place : KnownPlace::look_up().place;
}

}  // namespace allhands
