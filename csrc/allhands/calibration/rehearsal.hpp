// Two threads exchange arrays as two ranks do, by both ways, and take the time.
//
// It is done by the launcher, or by a rank that the others wait for anyway, until its
// figures are kept. So it has a limit, and where something else computes on these CPUs
// it finds nothing rather than something wrong: of each exchange the fastest of several
// counts.
#pragma once

#include <sched.h>

#include <chrono>
#include <functional>
#include <optional>

#include "allhands/calibration/figures.hpp"

namespace allhands {

struct Rehearsal {
  using Clock = std::chrono::steady_clock;

  Clock::duration limit = std::chrono::microseconds(2200);
  // Of all exchanges once; fewer in time are none. The first warms up.
  int least_rounds = 5;
  int most_rounds = 8;
  std::function<Clock::time_point()> now = Clock::now;

  // On two of `cpus`. Nothing where there is one, where the host does not let processes
  // read each other's memory or gives no threads or memory, and where the limit came
  // too soon.
  std::optional<Figures> run(const cpu_set_t& cpus) const;
};

}  // namespace allhands
