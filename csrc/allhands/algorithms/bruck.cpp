#include "allhands/algorithms/bruck.hpp"

#include <algorithm>

namespace allhands {
namespace {

void add_sends(Round& round, int peer, const std::vector<Range>& ranges) {
  for (const Range& range : ranges) round.push_back(Step::send(peer, range));
}

void add_receives(Round& round, int peer, const std::vector<Range>& ranges) {
  for (const Range& range : ranges) round.push_back(Step::receive(peer, range));
}

// Calls body(distance, num) for every exchange of a round in which each participant has
// its first `have` positions. The participant gets `num` positions from the peer
// `distance` after it.
template <class Body>
void for_each_exchange(int size, int have, int radix, const Body& body) {
  for (int j = 1; j < radix && j * have < size; ++j)
    body(j * have, std::min(have, size - j * have));
}

int least_radix(int radix, int size) { return std::clamp(radix, 2, std::max(size, 2)); }

}  // namespace

Schedule bruck_all_gather(int rank, const Partition& parts, int radix) {
  const int size = parts.size();
  radix = least_radix(radix, size);
  const Range own = {Memory::Input, 0, parts.count(rank)};
  const Range own_place = parts.part(Memory::Output, rank);
  Schedule schedule;
  if (size == 1) schedule.add({Step::copy(own, own_place)});
  for (int have = 1; have < size; have *= radix) {
    Round round;
    for_each_exchange(size, have, radix, [&](int distance, int num) {
      const int to = round_about(rank, -distance, size);
      if (have == 1)
        round.push_back(Step::send(to, own));
      else
        add_sends(round, to, parts.parts(Memory::Output, rank, num));
      const int from = round_about(rank, distance, size);
      add_receives(round, from, parts.parts(Memory::Output, from, num));
    });
    if (have == 1) round.push_back(Step::copy(own, own_place));
    schedule.add(round);
  }
  return schedule;
}

Schedule circulant_reduce_scatter(int rank, const Partition& parts) {
  const int size = parts.size();
  const Partition positions = parts.rotated(rank);
  const auto scratch = [&](int first, int num) {
    return positions.parts(Memory::Scratch, first, num).front();
  };
  const Range own = {Memory::Output, 0, parts.count(rank)};
  Schedule schedule;
  if (size == 1) {
    schedule.add({Step::copy(parts.part(Memory::Input, rank), own)});
    return schedule;
  }
  // From the farthest peer to the nearest. The first round goes from Input to Scratch.
  int have = 1;
  while (have * 2 < size) have *= 2;
  const int num = size - have;
  Round first;
  add_sends(first, round_about(rank, have, size),
            parts.parts(Memory::Input, round_about(rank, have, size), num));
  std::size_t at = 0;
  for (const Range& part : parts.parts(Memory::Input, rank, num)) {
    const Range reduced = {Memory::Scratch, at, part.count};
    first.push_back(Step::reduce_with(part, round_about(rank, -have, size),
                                      have == 1 ? own : reduced));
    at += part.count;
  }
  for (const Range& part :
       parts.parts(Memory::Input, round_about(rank, num, size), have - num)) {
    first.push_back(Step::copy(part, {Memory::Scratch, at, part.count}));
    at += part.count;
  }
  schedule.add(first);
  for (have /= 2; have >= 1; have /= 2)
    schedule.add({Step::send(round_about(rank, have, size), scratch(have, have)),
                  Step::reduce_with(scratch(0, have), round_about(rank, -have, size),
                                    have == 1 ? own : scratch(0, have))});
  return schedule;
}

Schedule gather_all_reduce(int rank, int size, std::size_t count, int radix) {
  radix = least_radix(radix, size);
  const Range input = {Memory::Input, 0, count}, output = {Memory::Output, 0, count};
  const auto positions = [&](int first, int num) {
    return Range{Memory::Scratch, static_cast<std::size_t>(first) * count,
                 static_cast<std::size_t>(num) * count};
  };
  Schedule schedule;
  if (size == 1) {
    schedule.add({Step::copy(input, output)});
    return schedule;
  }
  for (int have = 1; have < size; have *= radix) {
    Round round;
    for_each_exchange(size, have, radix, [&](int distance, int num) {
      round.push_back(Step::send(round_about(rank, -distance, size),
                                 have == 1 ? input : positions(0, num)));
      round.push_back(
          Step::receive(round_about(rank, distance, size), positions(distance, num)));
    });
    if (have == 1) round.push_back(Step::copy(input, positions(0, 1)));
    schedule.add(round);
  }
  const int position_of_0 = round_about(0, -rank, size);
  schedule.add({Step::reduce(positions(0, size), size, position_of_0, output)});
  return schedule;
}

namespace {

// Copies in as few steps as possible: ranges that are neighbours on both sides are
// merged.
class Copies {
 public:
  void add(const Range& from, const Range& to) {
    if (!round.empty()) {
      Step& last = round.back();
      const bool goes_on = last.from.part(last.from.count, from.count) == from &&
                           last.to.part(last.to.count, to.count) == to;
      if (goes_on) {
        last.from.count += from.count;
        last.to.count += to.count;
        return;
      }
    }
    round.push_back(Step::copy(from, to));
  }

  Round round;
};

}  // namespace

// In the round of distance d, the data for positions whose number has the bit d goes to
// the peer d after this one. It is packed before, into one message. Received data stays
// where it arrived, and is packed from there.
Schedule bruck_all_to_all(int rank, int size, std::size_t count) {
  const Partition parts = Partition::equal(count, size);
  std::vector<Range> at;  // where the data for each position is
  for (int i = 0; i < size; ++i)
    at.push_back(parts.part(Memory::Input, round_about(rank, i, size)));
  const std::size_t half = static_cast<std::size_t>(size / 2) * count;
  std::size_t arrivals = half;  // behind the packed message
  Schedule schedule;
  for (int distance = 1; distance < size; distance *= 2) {
    Copies packing;
    std::size_t length = 0;
    for (int i = 0; i < size; ++i) {
      if ((i & distance) == 0) continue;
      packing.add(at[static_cast<std::size_t>(i)], {Memory::Scratch, length, count});
      at[static_cast<std::size_t>(i)] = {Memory::Scratch, arrivals + length, count};
      length += count;
    }
    schedule.add(packing.round);
    schedule.add(
        {Step::send(round_about(rank, distance, size), {Memory::Scratch, 0, length}),
         Step::receive(round_about(rank, -distance, size),
                       {Memory::Scratch, arrivals, length})});
    arrivals += length;
  }
  // What arrived at position i came from the participant i before this one.
  Copies unpacking;
  for (int i = 0; i < size; ++i)
    unpacking.add(at[static_cast<std::size_t>(i)],
                  parts.part(Memory::Output, round_about(rank, -i, size)));
  schedule.add(unpacking.round);
  return schedule;
}

}  // namespace allhands
