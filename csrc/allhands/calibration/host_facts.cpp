#include "allhands/calibration/host_facts.hpp"

#include <algorithm>

#include "allhands/calibration/figures_file.hpp"
#include "allhands/calibration/rehearsal.hpp"
#include "allhands/host/caches.hpp"

namespace allhands {
namespace {

int first_of(const cpu_set_t& cpus) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &cpus)) return cpu;
  return 0;
}

std::optional<Figures> learn_figures(const cpu_set_t& cpus, const std::string& folder,
                                     bool may_rehearse) {
  const FiguresFile file(folder);
  if (const auto kept = file.read()) return kept;
  if (!may_rehearse) return std::nullopt;
  const auto figures = Rehearsal().run(cpus);
  if (figures) file.write(*figures);  // if this fails, the next job measures again
  return figures;
}

}  // namespace

HostFacts learn_host(const cpu_set_t& cpus, const std::string& folder,
                     bool may_rehearse) {
  // CPUs of one host are alike, and the look-up takes some 0.1 ms.
  static const std::uint64_t last_cache = last_cache_bytes(first_of(cpus));
  HostFacts facts = {std::max(CPU_COUNT(&cpus), 1), last_cache, std::nullopt,
                     kernel_copies_past_caches()};
  if (!folder.empty()) facts.figures = learn_figures(cpus, folder, may_rehearse);
  return facts;
}

}  // namespace allhands
