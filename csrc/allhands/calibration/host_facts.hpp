// The facts about a host that the tuning depends on.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>

#include "allhands/calibration/figures.hpp"

namespace allhands {

struct HostFacts {
  int cpus;                        // that the ranks may run on
  std::uint64_t last_cache_bytes;  // 0: unknown
  std::optional<Figures> figures;
  bool kernel_copies_past_caches = false;
};

// The facts for ranks that may run on `cpus`. The figures are those kept in `folder`,
// if any.
// If there are none and `may_rehearse`, a rehearsal measures them, and they are kept
// there.
// An empty `folder`: no figures.
HostFacts learn_host(const cpu_set_t& cpus, const std::string& folder,
                     bool may_rehearse);

}  // namespace allhands
