// The shape that most collectives have: in each round every rank stages a chunk in its
// slot, and when all have, collects what it needs from the others' slots. Two slots per
// rank let one rank stage round i + 1 while another still collects round i.
#pragma once

#include <cstddef>

#include "allhands/arena/arena.hpp"

namespace allhands {

// Calls stage(i), then collect(i), for i = 0 ... `rounds` - 1, at least once. The first
// meeting compares the descriptors, so a mismatched operation collects nothing.
template <class Stage, class Collect>
void run_rounds(Arena& arena, std::size_t rounds, Stage stage, Collect collect) {
  arena.enter([&] { stage(std::size_t{0}); });
  if (rounds > 1) arena.use_chunks(rounds);
  collect(std::size_t{0});
  for (std::size_t i = 1; i < rounds; ++i) {
    stage(i);
    arena.meet();
    collect(i);
  }
}

// `count` elements cut into rounds of at most `most`.
struct Cut {
  std::size_t count;
  std::size_t most;

  std::size_t rounds() const { return (count + most - 1) / most; }
  std::size_t begin(std::size_t i) const { return i * most; }
  std::size_t length(std::size_t i) const {
    const std::size_t at = begin(i);
    return at >= count ? 0 : (count - at < most ? count - at : most);
  }
};

}  // namespace allhands
