// Ranks that have not come because they wait for others: a rank that gives up names the
// ranks at the end of such rows, and not those that they hold up.
#include <algorithm>
#include <iterator>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/awaited.hpp"

namespace allhands {

// Tells the others that this rank now sleeps for that signal of `rank`.
void Arena::tell_awaited(int rank, const Signal& theirs, std::uint32_t clock) {
  int signal = 0;
  while (&control(rank).signal(signal) != &theirs) ++signal;
  control(this->rank())
      .awaits.store(Awaited{rank, signal, clock}.word(), std::memory_order_relaxed);
}

// Whether the rank sleeps for a signal of another one that has not come yet.
bool Arena::is_held_up(int rank) const {
  const std::uint64_t word = control(rank).awaits.load(std::memory_order_relaxed);
  const Awaited awaited = Awaited::of(word);
  if (awaited.rank < 0 || awaited.rank >= size() || awaited.rank == rank) return false;
  return !control(awaited.rank).signal(awaited.signal).has_reached(awaited.clock);
}

// Those of `ranks` that are not held up; all of them if none remains.
std::vector<int> Arena::without_held_up(const std::vector<int>& ranks) const {
  std::vector<int> rest;
  std::ranges::copy_if(ranks, std::back_inserter(rest),
                       [this](int rank) { return !is_held_up(rank); });
  return rest.empty() ? ranks : rest;
}

}  // namespace allhands
