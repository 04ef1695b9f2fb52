#include "allhands/algorithms/binomial.hpp"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "allhands/algorithms/composition.hpp"

namespace allhands {
namespace {

// A participant's place in the tree.
struct Place {
  Place(int rank, int root, int size)
      : root(root), size(size), place(round_about(rank, -root, size)) {}

  int rank_of(int other) const { return round_about(other, root, size); }
  bool is_root() const { return place == 0; }
  // The lowest bit of the place; for the root, the smallest power of two not below
  // size.
  int reach() const {
    return is_root() ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(size)))
                     : place & -place;
  }
  int parent() const { return place - reach(); }
  bool is_leaf() const { return !is_root() && (reach() == 1 || place + 1 == size); }

  // Calls body(place, reach) for each child, the one with the largest subtree first.
  template <class Body>
  void for_each_child(const Body& body) const {
    for (int distance = reach() / 2; distance >= 1; distance /= 2)
      if (place + distance < size) body(place + distance, distance);
  }

  int root, size, place;
};

// Where a participant has the parts of places [first, first + num). The root has them
// in rank order, in one range or two; it and its children cut them the same way. Other
// participants have the parts of their subtree in the order of places, from their own
// part on.
class Subtree {
 public:
  Subtree(const Place& own, const Partition& parts, Memory of_root, Memory of_leaf)
      : own_(own),
        parts_(parts),
        by_place_(parts.rotated(own.root)),
        of_root_(of_root),
        held_(own.is_leaf() ? of_leaf : Memory::Scratch) {}

  std::vector<Range> ranges(int first, int num, bool is_for_root) const {
    std::vector<Range> cut = parts_.parts(of_root_, own_.rank_of(first), num);
    if (own_.is_root()) return cut;
    const std::size_t at = by_place_.at(first) - by_place_.at(own_.place);
    if (!is_for_root)
      return {{held_, at, by_place_.at(first + num) - by_place_.at(first)}};
    std::size_t next = at;
    for (Range& range : cut)
      range = {held_, std::exchange(next, next + range.count), range.count};
    return cut;
  }
  // The parts that go to the parent, or come from it.
  std::vector<Range> all() const {
    const int num = std::min(own_.reach(), own_.size - own_.place);
    return ranges(own_.place, num, own_.parent() == 0);
  }
  // The parts of a child with this reach: they come from it, or go to it.
  std::vector<Range> below(int child, int reach) const {
    return ranges(child, std::min(reach, own_.size - child), own_.is_root());
  }
  Range own_part() const { return ranges(own_.place, 1, false).front(); }
  std::size_t own_count() const { return by_place_.count(own_.place); }

 private:
  const Place own_;
  const Partition& parts_;
  const Partition by_place_;
  const Memory of_root_;
  const Memory held_;
};

}  // namespace

Schedule binomial_broadcast(int rank, int size, int root, std::size_t count) {
  const Place own(rank, root, size);
  const Range array = {own.is_root() ? Memory::Input : Memory::Output, 0, count};
  Schedule schedule;
  if (!own.is_root()) schedule.add({Step::receive(own.rank_of(own.parent()), array)});
  own.for_each_child(
      [&](int child, int) { schedule.add({Step::send(own.rank_of(child), array)}); });
  return schedule;
}

Schedule binomial_reduce(int rank, int size, int root, std::size_t count) {
  const Place own(rank, root, size);
  const Range to = {own.is_root() ? Memory::Output : Memory::Scratch, 0, count};
  Range sum = {Memory::Input, 0, count};
  std::vector<int> children;
  own.for_each_child([&](int child, int) { children.push_back(child); });
  Schedule schedule;
  for (; !children.empty(); children.pop_back()) {  // the nearest first
    schedule.add({Step::reduce_with(sum, own.rank_of(children.back()), to)});
    sum = to;
  }
  if (own.is_root())
    schedule.add({Step::copy(sum, to)});  // with one participant
  else
    schedule.add({Step::send(own.rank_of(own.parent()), sum)});
  return schedule;
}

Schedule binomial_gather(int rank, int root, const Partition& parts) {
  const Place own(rank, root, parts.size());
  const Subtree subtree(own, parts, Memory::Output, Memory::Input);
  Schedule schedule;
  Round gathered = {
      Step::copy({Memory::Input, 0, subtree.own_count()}, subtree.own_part())};
  own.for_each_child([&](int child, int reach) {
    for (const Range& range : subtree.below(child, reach))
      gathered.push_back(Step::receive(own.rank_of(child), range));
  });
  schedule.add(gathered);
  if (own.is_root()) return schedule;
  Round passed_on;
  for (const Range& range : subtree.all())
    passed_on.push_back(Step::send(own.rank_of(own.parent()), range));
  schedule.add(passed_on);
  return schedule;
}

Schedule binomial_scatter(int rank, int root, const Partition& parts) {
  const Place own(rank, root, parts.size());
  const Subtree subtree(own, parts, Memory::Input, Memory::Output);
  Schedule schedule;
  if (!own.is_root()) {
    Round received;
    for (const Range& range : subtree.all())
      received.push_back(Step::receive(own.rank_of(own.parent()), range));
    schedule.add(received);
  }
  Round passed_on;
  own.for_each_child([&](int child, int reach) {
    schedule.add(passed_on);
    passed_on.clear();
    for (const Range& range : subtree.below(child, reach))
      passed_on.push_back(Step::send(own.rank_of(child), range));
  });
  passed_on.push_back(
      Step::copy(subtree.own_part(), {Memory::Output, 0, subtree.own_count()}));
  schedule.add(passed_on);
  return schedule;
}

Schedule gather_reduce(int rank, int size, int root, std::size_t count) {
  const Partition inputs = Partition::equal(count, size);
  return reduce_gathered(rank, root, inputs, binomial_gather(rank, root, inputs));
}

}  // namespace allhands
