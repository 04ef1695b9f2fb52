// The chooser's formulas agree with what the schedules take in the simulation.
#include "allhands/algorithms/choose.hpp"

#include <cstdio>

#include "check.hpp"
#include "simulation.hpp"

namespace allhands::testing {
namespace {

struct Place {
  const char* name;
  Costs costs;
};

constexpr Place kPlaces[] = {
    {"one machine", {4e-6, 1.5e-6, 0.5e-6, 1 / 6e9, 1 / 10e9, 1 / 10e9}},
    {"25 Gbit/s", {12e-6, 2e-6, 0.5e-6, 1 / 3e9, 1 / 10e9, 1 / 10e9}},
    {"1 Gbit/s", {40e-6, 5e-6, 1e-6, 1 / 120e6, 1 / 10e9, 1 / 10e9}},
    {"1 ms away", {1e-3, 2e-6, 0.5e-6, 1 / 1e9, 1 / 10e9, 1 / 10e9}},
};

constexpr std::size_t kElement = 4;

double simulated(const Choice& choice, const Task& task, const Costs& costs) {
  std::vector<Schedule> schedules;
  for (int i = 0; i < task.size(); ++i) schedules.push_back(choice.schedule(i, task));
  Contents none;
  const Network network = {.between_hosts = costs};
  return Simulation(schedules, network, kElement, none).run().end();
}

// A task on so many bytes, of which each participant has some.
Task task_of(Collective collective, int size, std::size_t bytes) {
  const auto n = static_cast<std::size_t>(size);
  std::size_t count = collective == Collective::Barrier ? 0 : bytes / kElement;
  if (collective != Collective::AllReduce && collective != Collective::Broadcast &&
      collective != Collective::Reduce)
    count = (count + n - 1) / n * n;
  return Task::even(collective, size, count);
}

// No other way is cheaper by more than a tenth, in the simulation.
void check_choice(const Task& task, const Place& place) {
  const Choice chosen = choose(task, kElement, place.costs);
  double least = kNever, own = 0;
  const Choice* best = nullptr;
  const std::vector<Choice> all = choices(task, kElement, place.costs);
  for (const Choice& choice : all) {
    const double time = simulated(choice, task, place.costs);
    if (time < least) best = &choice;
    least = std::min(least, time);
    if (choice.algorithm == chosen.algorithm && choice.value == chosen.value)
      own = time;
  }
  if (own <= 1.1 * least) return;
  std::fprintf(stderr,
               "%s, %d participants, collective %d, %zu elements:\n%s %zu takes %g s "
               "(%g estimated), %s %zu %g s (%g estimated)\n",
               place.name, task.size(), static_cast<int>(task.collective),
               task.parts.total(), chosen.algorithm->name, chosen.value, own,
               chosen.seconds, best->algorithm->name, best->value, least,
               best->seconds);
  CHECK(!"a better way");
}

void test_choices_are_the_best() {
  for (const Place& place : kPlaces)
    for (int c = 0; c <= static_cast<int>(Collective::Barrier); ++c)
      for (const int size : {1, 2, 3, 4, 5, 7, 8, 13, 16, 32, 64})
        for (std::size_t bytes = 8; bytes <= 64 << 20; bytes *= 32)
          check_choice(task_of(static_cast<Collective>(c), size, bytes), place);
}

void test_ways_that_reduce_as_one_host_does() {
  for (const Place& place : kPlaces)
    for (const int size : {1, 2, 9, 300})
      for (const std::size_t bytes : {8UL, 1UL << 16, 1UL << 26})
        for (const Collective collective :
             {Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce}) {
          const Task task = task_of(collective, size, bytes);
          const Choice choice = choose(task, kElement, place.costs, true);
          CHECK(choice.algorithm->order == Order::Once);
          CHECK(choice.seconds >= choose(task, kElement, place.costs).seconds);
        }
}

}  // namespace
}  // namespace allhands::testing

int main() {
  using namespace allhands::testing;
  test_choices_are_the_best();
  test_ways_that_reduce_as_one_host_does();
}
