// The chooser's formulas agree with what the schedules take in the simulation.
#include "allhands/algorithms/choose.hpp"

#include <algorithm>
#include <cstdio>

#include "check.hpp"
#include "networks.hpp"

namespace allhands::testing {
namespace {

// No other way is cheaper by more than a tenth, in the simulation.
void check_choice(const Task& task, const NamedCosts& network) {
  const Choice chosen = choose(task, kElement, network.costs);
  double least = kNever, own = 0;
  const Choice* best = nullptr;
  const std::vector<Choice> all = choices(task, kElement, network.costs);
  for (const Choice& choice : all) {
    const double time = simulated(choice, task, network.costs);
    if (time < least) best = &choice;
    least = std::min(least, time);
    if (choice.algorithm == chosen.algorithm && choice.value == chosen.value)
      own = time;
  }
  if (own <= 1.1 * least) return;
  std::fprintf(stderr,
               "%s, %d participants, collective %d, %zu elements:\n%s %zu takes %g s "
               "(%g estimated), %s %zu %g s (%g estimated)\n",
               network.name, task.size(), static_cast<int>(task.collective),
               task.parts.total(), chosen.algorithm->name, chosen.value, own,
               chosen.seconds, best->algorithm->name, best->value, least,
               best->seconds);
  CHECK(!"a better way");
}

void test_choices_are_the_best() {
  for (const NamedCosts& network : kNetworks)
    for (int c = 0; c <= static_cast<int>(TaskKind::Barrier); ++c)
      for (const int size : {1, 2, 3, 5, 8, 13, kIsSanitized ? 16 : 64})
        for (std::size_t bytes = 8; bytes <= 64 << 20; bytes *= 32)
          check_choice(task_of(static_cast<TaskKind>(c), size, bytes), network);
}

// What is received and reduced comes in parts, so nothing else may come from there.
void check_sources_of(const Schedule& schedule) {
  for (const Round& round : schedule.rounds)
    for (const Step& step : round)
      CHECK(step.kind != StepKind::ReceiveReduce ||
            1 == std::ranges::count_if(round, [&](const Step& other) {
              return other.peer == step.peer && (other.kind == StepKind::Receive ||
                                                 other.kind == StepKind::ReceiveReduce);
            }));
}

void test_ways_that_reduce_as_one_host_does() {
  for (const NamedCosts& network : kNetworks)
    for (const int size : {1, 2, 9, kIsSanitized ? 40 : 300})
      for (const std::size_t bytes : {8UL, 1UL << 16, 1UL << 26})
        for (const TaskKind collective :
             {TaskKind::AllReduce, TaskKind::ReduceScatter, TaskKind::Reduce}) {
          const Task task = task_of(collective, size, bytes);
          const Choice choice = choose(task, kElement, network.costs, true);
          CHECK(choice.algorithm->order == Order::Once);
          check_sources_of(choice.schedule(size - 1, task));
          CHECK(choice.seconds >= choose(task, kElement, network.costs).seconds);
        }
}

}  // namespace
}  // namespace allhands::testing

int main() {
  using namespace allhands::testing;
  test_choices_are_the_best();
  test_ways_that_reduce_as_one_host_does();
}
