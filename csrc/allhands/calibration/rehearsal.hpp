// Two threads exchange arrays as two ranks do, in both ways, and measure the time.
//
// The launcher runs it, or a rank that the others wait for anyway, until its figures
// are kept. So it has a time limit. If another program computes on these CPUs, it finds
// nothing rather than something wrong: the fastest of several exchanges counts.
#pragma once

#include <sched.h>

#include <chrono>
#include <functional>
#include <optional>

#include "allhands/calibration/figures.hpp"

namespace allhands {

struct Rehearsal {
  using Clock = std::chrono::steady_clock;

  Clock::duration limit = std::chrono::microseconds(2700);
  // Rounds of all exchanges; if fewer are done in time, there are no figures. The first
  // round warms up; after some 8 the least times settle.
  int least_rounds = 5;
  int most_rounds = 12;
  std::function<Clock::time_point()> now = Clock::now;

  // Runs on two of `cpus`. Returns nothing if there is only one CPU, if the host does
  // not let processes read each other's memory or has no threads or memory left, or if
  // the limit came too soon.
  std::optional<Figures> run(const cpu_set_t& cpus) const;
};

}  // namespace allhands
