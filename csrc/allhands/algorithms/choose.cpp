#include "allhands/algorithms/choose.hpp"

#include <algorithm>

namespace allhands {
namespace {

std::vector<std::size_t> radixes(const Algorithm& algorithm, const Load& load) {
  const bool sends_whole_arrays = algorithm.collective == TaskKind::AllReduce;
  const int most = most_at_once(sends_whole_arrays ? load.bytes : load.part);
  std::vector<std::size_t> all = {2};
  for (const int radix : {3, 4, 8, 16, load.size})
    if (radix > 2 && radix <= load.size && radix - 1 <= most)
      all.push_back(static_cast<std::size_t>(radix));
  return all;
}

std::vector<std::size_t> values_of(const Algorithm& algorithm, const Load& load,
                                   std::size_t element) {
  const auto elements = [element](double bytes) {
    return std::max<std::size_t>(static_cast<std::size_t>(bytes) / element, 1);
  };
  switch (algorithm.parameter) {
    case Parameter::Radix:
      return radixes(algorithm, load);
    case Parameter::Chunk:
      return {elements(algorithm.collective == TaskKind::Broadcast
                           ? best_chunk_of_broadcast(load)
                           : best_chunk_of_reduction(load))};
    case Parameter::AtOnce:
      return {best_at_once(load)};
    case Parameter::None:
      break;
  }
  return {0};
}

}  // namespace

std::vector<Choice> choices(const Task& task, std::size_t element, const Costs& costs) {
  Load load = {.costs = costs,
               .size = task.size(),
               .bytes = static_cast<double>(task.parts.total() * element),
               .part = static_cast<double>(task.parts.largest() * element),
               .value = 0,
               .chunk = 0};
  std::vector<Choice> all;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != task.collective) continue;
    for (const std::size_t value : values_of(algorithm, load, element)) {
      load.value = value;
      load.chunk = static_cast<double>(value * element);
      all.push_back({&algorithm, value, algorithm.estimate(load)});
    }
  }
  return all;
}

Choice choose(const Task& task, std::size_t element, const Costs& costs,
              bool as_on_one_host) {
  std::vector<Choice> all = choices(task, element, costs);
  if (as_on_one_host)
    std::erase_if(all, [](const Choice& choice) {
      const Order order = choice.algorithm->order;
      return order != Order::Once && order != Order::None;
    });
  return *std::ranges::min_element(all, {}, &Choice::seconds);
}

}  // namespace allhands
