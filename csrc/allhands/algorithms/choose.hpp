// Which algorithm carries out a task: the one with the lowest estimate.
//
// It depends only on what all participants know, so all choose the same algorithm.
#pragma once

#include <cstddef>
#include <vector>

#include "allhands/algorithms/algorithm.hpp"
#include "allhands/algorithms/costs.hpp"

namespace allhands {

// An algorithm with the value of its parameter, and the time it is expected to take.
struct Choice {
  const Algorithm* algorithm;
  std::size_t value;
  double seconds;

  Schedule schedule(int rank, const Task& task) const {
    return algorithm->schedule(rank, task, value);
  }
};

// All ways to carry out a task on elements of `element` bytes: each algorithm, with the
// values of its parameter that may be the best.
std::vector<Choice> choices(const Task& task, std::size_t element, const Costs& costs);

// The best of them. `as_on_one_host`: only of those that reduce as one host does, in
// rank order and rounded once; every collective has one.
Choice choose(const Task& task, std::size_t element, const Costs& costs,
              bool as_on_one_host = false);

}  // namespace allhands
