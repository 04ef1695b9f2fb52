// Every algorithm carries out its collective, for every number of participants.
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "allhands/algorithms/algorithm.hpp"
#include "allhands/algorithms/pairwise.hpp"
#include "allhands/kernels/reduce.hpp"
#include "expressions.hpp"
#include "simulated_arrays.hpp"

namespace allhands::testing {
namespace {

constexpr Costs kCosts = {10e-6, 1e-6, 1e-6, 1e-9, 1e-10, 1e-10};

using Schedules = std::vector<Schedule>;

Schedules schedules_of(const Algorithm& algorithm, const Task& task,
                       std::size_t value) {
  Schedules all;
  for (int i = 0; i < task.size(); ++i)
    all.push_back(algorithm.schedule(i, task, value));
  return all;
}

std::vector<std::size_t> values_of(Parameter parameter, const Task& task) {
  const auto size = static_cast<std::size_t>(task.size());
  switch (parameter) {
    case Parameter::None:
      return {0};
    case Parameter::Radix:
      return {2, 3, 4, 8, std::max<std::size_t>(size, 2)};
    case Parameter::Chunk:
      return {1 + task.parts.total() / 5, std::max<std::size_t>(task.parts.total(), 1)};
    case Parameter::AtOnce:
      return {1, 3, size};
  }
  return {};
}

// One run with values that tell where they come from.
class Proof {
 public:
  Proof(const Algorithm& algorithm, const Task& task, std::size_t value, bool in_place)
      : algorithm_(algorithm),
        task_(task),
        schedules_(schedules_of(algorithm, task, value)),
        arrays_(
            task, schedules_,
            [&](int i, std::size_t at) { return expressions_.leaf(i, at); },
            [&](const std::vector<Value>& values) {
              return expressions_.reduced(values);
            },
            in_place) {}

  void run(const Network& network) {
    const Outcome outcome = Simulation(schedules_, network, 1, arrays_).run();
    for (const double end : outcome.ends) CHECK(end != kNever);
    for (int i = 0; i < task_.size(); ++i)
      for (std::size_t at = 0; at < output_count(task_, i); ++at)
        check(i, at, arrays_.output(i, at));
  }

 private:
  void check(int i, std::size_t at, Value value) {
    const Partition& parts = task_.parts;
    switch (task_.collective) {
      case TaskKind::AllReduce:
      case TaskKind::Reduce:
        return check_reduced(at, value);
      case TaskKind::ReduceScatter:
        return check_reduced(parts.at(i) + at, value);
      case TaskKind::AllGather:
      case TaskKind::Gather: {
        const int from = owner(at);
        CHECK(value == expressions_.leaf(from, at - parts.at(from)));
        return;
      }
      case TaskKind::Broadcast:
        CHECK(value == expressions_.leaf(task_.root, at));
        return;
      case TaskKind::Scatter:
        CHECK(value == expressions_.leaf(task_.root, parts.at(i) + at));
        return;
      case TaskKind::AllToAll: {
        const int from = owner(at);
        CHECK(value == expressions_.leaf(from, parts.at(i) + at - parts.at(from)));
        return;
      }
      case TaskKind::Barrier:
        return;
    }
  }

  int owner(std::size_t at) const {
    int i = 0;
    while (task_.parts.at(i + 1) <= at) ++i;
    return i;
  }

  // The first time that an element is met it says what all participants must have.
  void check_reduced(std::size_t element, Value value) {
    CHECK(value != 0);
    const auto [known, is_new] = reduced_.try_emplace(element, value);
    CHECK(known->second == value);
    if (!is_new) return;
    std::vector<Value> all;
    for (int i = 0; i < task_.size(); ++i) all.push_back(expressions_.leaf(i, element));
    std::vector<Value> leaves = expressions_.leaves(value);
    if (algorithm_.order == Order::Rotated)
      std::ranges::sort(leaves, {},
                        [&](Value v) { return expressions_.participant(v); });
    CHECK(leaves == all);
    if (algorithm_.order == Order::Once) CHECK(value == expressions_.reduced(all));
    if (algorithm_.order == Order::Chain) {
      Value sum = all.front();
      for (std::size_t i = 1; i < all.size(); ++i)
        sum = expressions_.reduced({sum, all[i]});
      CHECK(value == sum);
    }
    if (algorithm_.order == Order::Tree) {
      const Value first = reduced_.begin()->second;
      CHECK(value == expressions_.of_element(first, element));
    }
  }

  const Algorithm& algorithm_;
  const Task& task_;
  Expressions expressions_;
  const Schedules schedules_;
  SimulatedArrays<Value> arrays_;
  std::map<std::size_t, Value> reduced_;
};

bool has_root(TaskKind collective) {
  return collective == TaskKind::Broadcast || collective == TaskKind::Reduce ||
         collective == TaskKind::Gather || collective == TaskKind::Scatter;
}

bool takes_uneven_parts(TaskKind collective) {
  return collective == TaskKind::ReduceScatter || collective == TaskKind::AllGather ||
         collective == TaskKind::Gather || collective == TaskKind::Scatter;
}

std::vector<Partition> partitions(TaskKind collective, int size) {
  const auto n = static_cast<std::size_t>(size);
  if (collective == TaskKind::Barrier) return {Partition::even(0, size)};
  if (collective == TaskKind::AllToAll)
    return {Partition::even(0, size), Partition::even(n, size),
            Partition::even(3 * n, size)};
  std::vector<Partition> all;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n - 1, 2 * n + 1})
    all.push_back(Partition::even(count, size));
  if (!takes_uneven_parts(collective)) return all;
  std::mt19937 random(static_cast<unsigned>(size));
  std::vector<std::size_t> uneven(n), one_only(n);
  for (std::size_t& count : uneven) count = random() % 4;
  one_only[random() % n] = 5;
  all.emplace_back(uneven);
  all.emplace_back(one_only);
  return all;
}

std::vector<int> roots(TaskKind collective, int size) {
  if (!has_root(collective)) return {0};
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// All of `items` where participants are few, and one where they are many.
template <class T>
std::vector<T> some(const std::vector<T>& items, int size, std::mt19937& random) {
  if (size <= 17) return items;
  return {items[random() % items.size()]};
}

// With sends that wait for their receives: whatever does not count on buffers does not
// count on waiting either.
void test_every_algorithm_for_every_size() {
  const Network network = {.between_hosts = kCosts, .is_synchronous = true};
  std::mt19937 random(1);
  for (const Algorithm& algorithm : algorithms())
    for (int size = 1; size <= (kIsSanitized ? 12 : 65); ++size)
      for (const Partition& parts : partitions(algorithm.collective, size))
        for (const int root : some(roots(algorithm.collective, size), size, random)) {
          const Task task = {algorithm.collective, parts, root};
          const auto values = values_of(algorithm.parameter, task);
          for (const std::size_t value : some(values, size, random))
            for (const bool in_place : some(std::vector{false, true}, size, random))
              Proof(algorithm, task, value, in_place).run(network);
        }
}

// Messages that overtake others of other pairs, or come again and again, change
// nothing.
void test_delays_and_losses_change_nothing() {
  for (const Algorithm& algorithm : algorithms())
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const Network network = {.between_hosts = kCosts,
                               .is_synchronous = seed % 2 == 0,
                               .seed = seed,
                               .most_delay = 1e-3,
                               .loss = 0.2,
                               .retransmission = 1e-3};
      const Task task = Task::even(algorithm.collective, 11, 55, 4);
      for (const std::size_t value : values_of(algorithm.parameter, task))
        Proof(algorithm, task, value, false).run(network);
    }
}

// Whoever cannot go on waits for the dead one, if need be by way of others.
void test_who_waits_waits_for_the_dead_one() {
  for (const Algorithm& algorithm : algorithms())
    for (int dead = 0; dead < 11; ++dead)
      for (const double death : {0.0, 12e-6, 30e-6}) {
        const Network network = {.between_hosts = kCosts, .dead = dead, .death = death};
        const Task task = Task::even(algorithm.collective, 11, 5500, 4);
        const Schedules schedules =
            schedules_of(algorithm, task, values_of(algorithm.parameter, task)[0]);
        Contents none;
        const Outcome outcome = Simulation(schedules, network, 4, none).run();
        std::set<int> reached = {dead};
        for (std::size_t found = 0; found != reached.size();) {
          found = reached.size();
          for (int i = 0; i < task.size(); ++i)
            for (const int other : outcome.waits_for[static_cast<std::size_t>(i)])
              if (reached.contains(other)) reached.insert(i);
        }
        for (int i = 0; i < task.size(); ++i)
          CHECK(i == dead || reached.contains(i) ==
                                 (outcome.ends[static_cast<std::size_t>(i)] == kNever));
      }
}

// Of any two participants one may send and expect any number of elements.
void test_uneven_all_to_all() {
  for (int size = 1; size <= 20; ++size) {
    const auto count = [size](int from, int to) {
      return static_cast<std::size_t>((from * 7 + to * 3 + size) % 4);
    };
    std::vector<Partition> sent, received;
    Schedules schedules;
    for (int i = 0; i < size; ++i) {
      std::vector<std::size_t> out, in;
      for (int j = 0; j < size; ++j) {
        out.push_back(count(i, j));
        in.push_back(count(j, i));
      }
      sent.emplace_back(out);
      received.emplace_back(in);
      schedules.push_back(pairwise_all_to_all(i, sent.back(), received.back(), 2));
    }
    for (int i = 0; i < size; ++i) {
      const auto& own = schedules[static_cast<std::size_t>(i)];
      std::size_t arriving = 0;
      for (const Round& round : own.rounds)
        for (const Step& step : round)
          if (step.kind == StepKind::Receive) {
            const Range part =
                received[static_cast<std::size_t>(i)].part(Memory::Output, step.peer);
            CHECK(step.to == part);
            arriving += part.count;
          } else if (step.kind == StepKind::Send) {
            CHECK(step.from ==
                  sent[static_cast<std::size_t>(i)].part(Memory::Input, step.peer));
          }
      CHECK(arriving + count(i, i) == received[static_cast<std::size_t>(i)].total());
    }
    Contents none;
    const Network network = {.between_hosts = kCosts, .is_synchronous = true};
    for (const double end : Simulation(schedules, network, 1, none).run().ends)
      CHECK(end != kNever);
  }
}

// Sums of floats that depend on their order, with the kernels that all of the core
// reduces with.
template <class T>
void test_sums(DType dtype, const std::function<T(int, std::size_t)>& input,
               bool rounds_each_addition) {
  const auto sum = [dtype](const std::vector<T>& values) {
    std::vector<const void*> sources;
    for (const T& value : values) sources.push_back(&value);
    T result;
    reduce(dtype, ReduceOp::Sum, &result, sources.data(),
           static_cast<int>(sources.size()), 1, nullptr);
    return result;
  };
  const Network network = {.between_hosts = kCosts};
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.order == Order::None) continue;
    for (const int size : {2, 3, 5, 8, 13, 32}) {
      const Task task = Task::even(algorithm.collective, size, 97, size / 3);
      const Schedules schedules =
          schedules_of(algorithm, task, values_of(algorithm.parameter, task)[0]);
      SimulatedArrays<T> arrays(task, schedules, input, sum, false);
      Simulation(schedules, network, sizeof(T), arrays).run();
      std::map<std::size_t, T> results;
      for (int i = 0; i < size; ++i)
        for (std::size_t at = 0; at < output_count(task, i); ++at) {
          const std::size_t element =
              at +
              (algorithm.collective == TaskKind::ReduceScatter ? task.parts.at(i) : 0);
          const T result = arrays.output(i, at);
          const auto [known, is_new] = results.try_emplace(element, result);
          CHECK(std::memcmp(&known->second, &result, sizeof(T)) == 0);
          if (!is_new) continue;
          std::vector<T> all;
          for (int j = 0; j < size; ++j) all.push_back(input(j, element));
          const T once = sum(all);
          if (algorithm.order == Order::Once ||
              (algorithm.order == Order::Chain && !rounds_each_addition))
            CHECK(std::memcmp(&once, &result, sizeof(T)) == 0);
        }
      CHECK(results.size() == 97);
    }
  }
}

void test_bits_of_sums() {
  // Of very different sizes, so that nearly every order has a sum of its own.
  test_sums<float>(
      DType::Float32,
      [](int i, std::size_t at) {
        const auto mixed = (static_cast<std::uint32_t>(i) * 2654435761U) ^
                           (static_cast<std::uint32_t>(at) * 40503U);
        return static_cast<float>(static_cast<int>(mixed % 2001) - 1000) *
               std::ldexp(1.0F, static_cast<int>(mixed % 31));
      },
      false);
  test_sums<std::uint16_t>(  // positive float16 of up to 2: rounded at every addition
      DType::Float16,
      [](int i, std::size_t at) {
        return static_cast<std::uint16_t>(
            (static_cast<std::size_t>(i) * 7919 + at * 31) % 0x4000);
      },
      true);
}

}  // namespace
}  // namespace allhands::testing

int main() {
  using namespace allhands::testing;
  test_every_algorithm_for_every_size();
  test_delays_and_losses_change_nothing();
  test_who_waits_waits_for_the_dead_one();
  test_uneven_all_to_all();
  test_bits_of_sums();
}
