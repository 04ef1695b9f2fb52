// Networks as the simulation sees them, and the time of a task on one of them.
#pragma once

#include "allhands/algorithms/choose.hpp"
#include "simulation.hpp"

namespace allhands::testing {

constexpr std::size_t kElement = 4;  // bytes

struct NamedCosts {
  const char* name;
  Costs costs;
};

constexpr NamedCosts kNetworks[] = {
    {"one machine", {4e-6, 1.5e-6, 0.5e-6, 1 / 6e9, 1 / 10e9, 1 / 10e9}},
    {"25 Gbit/s", {12e-6, 2e-6, 0.5e-6, 1 / 3e9, 1 / 10e9, 1 / 10e9}},
    {"1 Gbit/s", {40e-6, 5e-6, 1e-6, 1 / 120e6, 1 / 10e9, 1 / 10e9}},
    {"1 ms away", {1e-3, 2e-6, 0.5e-6, 1 / 1e9, 1 / 10e9, 1 / 10e9}},
};

// A task on so many bytes, of which each participant has some.
inline Task task_of(TaskKind collective, int size, std::size_t bytes) {
  const auto n = static_cast<std::size_t>(size);
  std::size_t count = collective == TaskKind::Barrier ? 0 : bytes / kElement;
  if (collective != TaskKind::AllReduce && collective != TaskKind::Broadcast &&
      collective != TaskKind::Reduce)
    count = (count + n - 1) / n * n;
  return Task::even(collective, size, count);
}

inline double simulated(const std::vector<Schedule>& schedules,
                        const Network& network) {
  Contents none;
  return Simulation(schedules, network, kElement, none).run().end();
}

inline double simulated(const Choice& choice, const Task& task, const Costs& costs) {
  std::vector<Schedule> schedules;
  for (int i = 0; i < task.size(); ++i) schedules.push_back(choice.schedule(i, task));
  const Network network = {.between_hosts = costs};
  return simulated(schedules, network);
}

}  // namespace allhands::testing
