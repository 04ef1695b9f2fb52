// Ranks that have not come because they wait for others: a rank that gives up names the
// ranks at the end of such rows, and not those that they hold up.
#include <algorithm>

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

// Whether the rank has begun this operation, but does not have the segment yet.
bool Arena::awaits_memory(int rank) const {
  return control(rank).entered.load(std::memory_order_relaxed) == 0 && has_begun_ &&
         has_begun_(rank, sequence_);
}

void Arena::tell_maker() const {
  layout_.header(memory_->data()).maker.store(rank() + 1, std::memory_order_relaxed);
}

// The rank that hands the segment out, if it cannot because it is stopped; else -1.
int Arena::stopped_maker() const {
  const int maker =
      layout_.header(memory_->data()).maker.load(std::memory_order_relaxed) - 1;
  const bool is_other = maker >= 0 && maker < size() && maker != rank();
  return is_other && is_stopped(process(maker)) ? maker : -1;
}

// Those of `ranks` that are not held up. If none remains, the stopped rank for whose
// segment they wait; or else all of them.
std::vector<int> Arena::without_held_up(const std::vector<int>& ranks) const {
  const int maker = stopped_maker();
  std::vector<int> rest;
  for (const int rank : ranks)
    if (!is_held_up(rank) && (maker < 0 || rank == maker || !awaits_memory(rank)))
      rest.push_back(rank);
  if (!rest.empty()) return rest;
  const bool is_by_maker = maker >= 0 && std::ranges::any_of(ranks, [this](int rank) {
                             return awaits_memory(rank);
                           });
  return is_by_maker ? std::vector<int>{maker} : ranks;
}

}  // namespace allhands
