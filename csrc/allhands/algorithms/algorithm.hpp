// All algorithms in one table: the collective that each carries out, the order in which
// it reduces, how its schedules are made, and how long it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "allhands/algorithms/estimates.hpp"
#include "allhands/algorithms/partition.hpp"
#include "allhands/algorithms/schedule.hpp"

namespace allhands {

// What participants can do together by a schedule.
enum class TaskKind : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  Broadcast,
  Reduce,
  Gather,
  Scatter,
  AllToAll,
  Barrier,
};

// A task of a collective, as all participants know it.
struct Task {
  TaskKind collective;
  // The part of each participant; in AllToAll, what each sends to each. If the array
  // belongs to all participants, these are even parts of it.
  Partition parts;
  int root = 0;

  // The task for an array of `count` elements that all have or, in AllToAll, that each
  // sends.
  static Task even(TaskKind collective, int size, std::size_t count, int root = 0) {
    return {collective, Partition::even(count, size), root};
  }

  int size() const { return parts.size(); }
};

// The order in which an algorithm reduces. With each order, all participants get the
// same bits.
enum class Order : std::uint8_t {
  None,    // it reduces nothing
  Once,    // in rank order, rounded as one reduction: as one host computes it
  Chain,   // in rank order, each addition rounded
  Tree,    // neighbours in rank order first, by the same tree for every element
  Rotated  // in an order that depends on the position of the element, or on the root
};

// The parameter of an algorithm, beside its task.
enum class Parameter : std::uint8_t {
  None,
  Radix,   // of Bruck's algorithms
  Chunk,   // elements, of chains
  AtOnce,  // exchanges per round, of pairwise ones
};

// One way to carry out a collective.
struct Algorithm {
  TaskKind collective;
  const char* name;
  Order order;
  Parameter parameter;
  // Makes the schedule of one participant. `value`, of the parameter, is at least 1, or
  // 2 for a radix.
  Schedule (*schedule)(int rank, const Task& task, std::size_t value);
  Estimate estimate;
};

// The algorithms of a collective stand together.
std::span<const Algorithm> algorithms();

}  // namespace allhands
