// How ranks meet: if they are few, each waits for every other; if they are many, they
// meet up and down a MeetingTree. In the tree a rank publishes, waits until all ranks
// below it have published, and tells the rank above it, which tells it when all ranks
// have. Whether descriptors differ is passed up and down along with that, and a small
// result that the top has made is passed down.
#include <algorithm>
#include <cstring>

#include "allhands/arena/arena.hpp"
#include "allhands/base/futex.hpp"

namespace allhands {
namespace {

// Sequentially consistent with the waiter's increment and re-read: either the waiter
// sees the new clock, or this thread sees that the waiter sleeps.
void tell(Signal& signal, std::uint32_t clock) {
  signal.clock.exchange(clock, std::memory_order_seq_cst);
  if (signal.waiters.load(std::memory_order_seq_cst) != 0) futex_wake_all(signal.clock);
}

}  // namespace

std::uint32_t Arena::publish() {
  tell(line(rank()), ++clock_);
  return clock_;
}

// Meets all ranks. Returns whether their descriptors may differ.
bool Arena::gather_and_release(bool is_entering, const Make* make) {
  if (!tree_) {
    wait_all(clock_);
    return true;
  }
  RankControl& mine = control(rank());
  meeting_ = clock_;
  bool is_different = gather(is_entering);
  if (tree_->top() == rank()) {
    if (make != nullptr && !is_different) (*make)(mine.released.payload);
  } else {
    const int parent = tree_->parent(rank());
    Released& theirs = control(parent).released;
    wait(parent, theirs, clock_);
    is_different = theirs.is_different != 0;
    if (make != nullptr)
      std::memcpy(mine.released.payload, theirs.payload, kInlineBytes);
  }
  if (!tree_->is_leaf(rank())) {
    mine.released.is_different = is_different;
    tell(mine.released, clock_);
  }
  meeting_.reset();
  return is_different;
}

// Waits for the ranks below this one, and tells the rank above it.
bool Arena::gather(bool is_entering) {
  bool is_different = false;
  for (const int child : tree_->children(rank())) {
    wait(child, passed_up(child), clock_);
    if (!is_entering) continue;
    is_different =
        is_different || line(child).descriptor != descriptor_ ||
        (!tree_->is_leaf(child) && control(child).gathered.is_different != 0);
  }
  if (!tree_->is_leaf(rank())) {
    Gathered& mine = control(rank()).gathered;
    mine.is_different = is_different;
    tell(mine, clock_);
  }
  return is_different;
}

// The signal that `rank` and all ranks below it have published.
Signal& Arena::passed_up(int rank) const {
  if (tree_->is_leaf(rank)) return line(rank);
  return control(rank).gathered;
}

// The ranks that delay a meeting to which all ranks have come: they have not yet told
// the others.
std::vector<int> Arena::holding_up(std::uint32_t clock) const {
  std::vector<int> ranks;
  if (!tree_ || meeting_ != clock) return ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || tree_->is_leaf(peer)) continue;
    const RankControl& theirs = control(peer);
    const bool is_top = peer == tree_->top();
    const bool has_all = std::ranges::all_of(tree_->children(peer), [&](int child) {
      return passed_up(child).has_reached(clock);
    });
    const bool is_told =
        is_top ? has_all : control(tree_->parent(peer)).released.has_reached(clock);
    if ((has_all && !theirs.gathered.has_reached(clock)) ||
        (is_told && !theirs.released.has_reached(clock)))
      ranks.push_back(peer);
  }
  return ranks;
}

void Arena::tell_place() const {
  if (!tuning_.are_many(size())) return;
  const Place place = place_here(layout_.header(memory_->data()).known_place);
  const auto word = static_cast<std::uint32_t>(place.socket << 16 | place.cache);
  control(rank()).place.store(word, std::memory_order_relaxed);
}

// Makes the tree, if there are many ranks. Before they have met for the first time, no
// rank knows where the others are. If that makes no difference, the tree stays.
void Arena::arrange(bool have_met) {
  if (!tuning_.are_many(size())) return;
  std::vector<Place> places(static_cast<std::size_t>(size()));
  for (int peer = 0; have_met && peer < size(); ++peer) {
    const std::uint32_t place = control(peer).place.load(std::memory_order_relaxed);
    places[static_cast<std::size_t>(peer)] = {
        static_cast<std::uint16_t>(place >> 16),
        static_cast<std::uint16_t>(place & 0xffff)};
  }
  const bool are_alike = std::ranges::all_of(
      places, [&](const Place& place) { return place == places.front(); });
  if (!have_met || !are_alike) tree_.emplace(places);
}

}  // namespace allhands
