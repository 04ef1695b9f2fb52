// All algorithms in one table: which collective each carries out, in which order it
// reduces, how its schedules are made, and how long it takes.
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

// What is to be done, as all participants know it alike.
struct Task {
  TaskKind collective;
  // What belongs to each participant, or in AllToAll goes from each to each; where the
  // array belongs to all, even parts of it.
  Partition parts;
  int root = 0;

  // Of an array of `count` elements that all have, or of AllToAll that each sends.
  static Task even(TaskKind collective, int size, std::size_t count, int root = 0) {
    return {collective, Partition::even(count, size), root};
  }

  int size() const { return parts.size(); }
  // Elements of Input and Output of a participant; 0 where it has none.
  std::size_t input_count(int rank) const;
  std::size_t output_count(int rank) const;
};

// In which order an algorithm reduces. All participants get the same bits by each.
enum class Order : std::uint8_t {
  None,    // it reduces nothing
  Once,    // in rank order, rounded as one reduction: as one host computes it
  Chain,   // in rank order, each addition rounded
  Tree,    // neighbours in rank order first, the same tree for every element
  Rotated  // in an order that depends on the element's place, or on the root
};

// What an algorithm can be told beside its task.
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
  // The schedule of one participant. `value` of the parameter is at least 1, or 2 of a
  // radix.
  Schedule (*schedule)(int rank, const Task& task, std::size_t value);
  Estimate estimate;
};

// Those of a collective stand together.
std::span<const Algorithm> algorithms();

}  // namespace allhands
