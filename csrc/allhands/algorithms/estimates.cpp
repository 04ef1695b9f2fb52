#include "allhands/algorithms/estimates.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace allhands {
namespace {

// How long a message occupies a link.
double on_link(const Costs& costs, double bytes) {
  return std::max(costs.gap, bytes * costs.per_byte);
}

// The time of a message apart from its time on the link.
double fixed(const Costs& costs) { return 2 * costs.overhead + costs.latency; }

// A round in which each participant sends and receives one message.
double exchange(const Costs& costs, double bytes) {
  return fixed(costs) + on_link(costs, bytes);
}

// A round in which each participant sends and receives `num` messages, which occupy the
// link for `links` in total. The processor sends all before it takes what has come.
double exchanges(const Costs& costs, double num, double links) {
  const double o = costs.overhead, one = links / num;
  const double last_sent = std::max(num * o, o + links - one);
  const double first_come = std::max(num * o, o + costs.latency + one);
  return std::max(last_sent + one + costs.latency + o, first_come + num * o);
}

int log2_floor(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
bool is_power_of_2(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

// Bruck's rounds, with messages of `part` bytes for each position. `is_cut`: some
// messages are split in two, before and after the end of the array.
double bruck(const Load& load, int radix, double part, bool is_cut) {
  const Costs& c = load.costs;
  const int r = std::clamp(radix, 2, std::max(load.size, 2));
  double time = 0;
  for (int have = 1; have < load.size; have *= r) {
    double num = 0, links = 0;
    for (int j = 1; j < r && j * have < load.size; ++j) {
      links += on_link(c, std::min(have, load.size - j * have) * part);
      ++num;
    }
    if (is_cut && have > 1) {
      links += c.gap;
      ++num;
    }
    time += exchanges(c, num, links);
  }
  return time;
}

// When the last of a tree of `size` places has what its root sends: `part` bytes for
// each place, or the same bytes for all. A place sends to its children one after the
// other, first to the one with the largest subtree.
double down_tree(const Costs& costs, int size, double part, bool is_same_for_all) {
  double sent = 0, end = 0;
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2;
       distance >= 1; distance /= 2) {
    if (distance >= size) continue;
    const int below = std::min(distance, size - distance);
    sent += costs.overhead + on_link(costs, is_same_for_all ? part : below * part);
    end = std::max(end, sent + costs.latency + costs.overhead +
                            down_tree(costs, below, part, is_same_for_all));
  }
  return std::max(end, sent);
}

// When the root of a tree has what the places send, and has also reduced each message
// if `is_reduced`.
double up_tree(const Costs& costs, int size, double part, bool is_reduced) {
  double end = 0, link_free = 0;
  for (int distance = 1; distance < size; distance *= 2) {
    const int below = std::min(distance, size - distance);
    const double link = on_link(costs, is_reduced ? part : below * part);
    const double sent = up_tree(costs, below, part, is_reduced) + costs.overhead;
    link_free = std::max(link_free, sent + costs.latency) + link;
    end = std::max(end, link_free) + costs.overhead +
          (is_reduced ? part * costs.per_byte_reduced : 0);
  }
  return end;
}

double reduced(const Load& load, double bytes) {
  return bytes * load.costs.per_byte_reduced;
}
double copied(const Load& load, double bytes) {
  return bytes * load.costs.per_byte_copied;
}

// When the root has sent `bytes` to each participant, or received them from each.
double direct(const Load& load, double bytes) {
  if (load.size == 1) return 0;
  const double link = on_link(load.costs, bytes);
  return fixed(load.costs) + link +
         (load.size - 2) * std::max(link, load.costs.overhead);
}

double num_chunks(const Load& load) {
  return std::max(1.0, std::ceil(load.bytes / std::max(load.chunk, 1.0)));
}

// What a fold at the beginning and the end adds: two messages of the whole array.
double folding(const Load& load) {
  if (is_power_of_2(load.size)) return 0;
  return 2 * exchange(load.costs, load.bytes) + reduced(load, load.bytes);
}

// The steps of a chain in which each chunk comes back, which wait for each other.
double coming_back(const Load& load, double hops, double messages_at_once) {
  const double c = load.bytes / num_chunks(load);
  const double step = fixed(load.costs) + (messages_at_once - 1) * load.costs.overhead +
                      messages_at_once * on_link(load.costs, c) + reduced(load, c);
  const double first = exchange(load.costs, c) + reduced(load, c);
  const double num = num_chunks(load);
  return num == 1 ? hops * first : hops * first + (num - 1) * step;
}

// The steps of a chain in one direction.
double going_on(const Load& load, double hops) {
  const double c = load.bytes / num_chunks(load);
  return hops * exchange(load.costs, c) +
         (num_chunks(load) - 1) * (load.costs.overhead + on_link(load.costs, c));
}

double best_chunk(const Load& load, double hops, double per_step, double per_byte) {
  // The minimum of (bytes / chunk + hops) * (per_step + chunk * per_byte).
  return std::sqrt(load.bytes * per_step / (std::max(hops, 1.0) * per_byte));
}

}  // namespace

namespace estimates {

double gather_all_reduce(const Load& load) {
  return bruck(load, static_cast<int>(load.value), load.bytes, false) +
         reduced(load, (load.size - 1) * load.bytes);
}

double doubling_all_reduce(const Load& load) {
  const int rounds = log2_floor(load.size);
  const bool ends_in_scratch =
      (rounds + (is_power_of_2(load.size) ? 0 : 1)) % 2 == 1 && load.size > 1;
  return rounds * (exchange(load.costs, load.bytes) + reduced(load, load.bytes)) +
         (ends_in_scratch ? copied(load, load.bytes) : 0) + folding(load);
}

double halving_all_reduce(const Load& load) {
  double time = folding(load), bytes = load.bytes;
  for (int i = 0; i < log2_floor(load.size); ++i) {
    bytes /= 2;
    time += 2 * exchange(load.costs, bytes) + reduced(load, bytes);
  }
  return time;
}

double circulant_all_reduce(const Load& load) {
  return circulant_reduce_scatter(load) + bruck(load, 2, load.part, true);
}

double pairwise_all_reduce(const Load& load) {
  return pairwise_reduce_scatter(load) + bruck(load, 2, load.part, true);
}

double ring_all_reduce(const Load& load) {
  return ring_reduce_scatter(load) + ring_all_gather(load);
}

double chain_all_reduce(const Load& load) {
  return coming_back(load, 2 * (load.size - 1), load.size == 2 ? 1 : 2);
}

double circulant_reduce_scatter(const Load& load) {
  if (load.size == 1) return 0;
  const Costs& c = load.costs;
  const int first =
      static_cast<int>(std::bit_ceil(static_cast<unsigned>(load.size))) / 2;
  const int num =
      load.size - first;  // positions of the first round; the rest is copied
  double time = std::max(exchanges(c, first > 1 ? 2 : 1, on_link(c, num * load.part)),
                         2 * c.overhead + copied(load, (first - num) * load.part));
  for (int have = first / 2; have >= 1; have /= 2)
    time += exchange(c, have * load.part);
  return time + reduced(load, (load.size - 1) * load.part);
}

double pairwise_reduce_scatter(const Load& load) {
  return pairwise_all_to_all(load) + reduced(load, (load.size - 1) * load.part);
}

double ring_reduce_scatter(const Load& load) {
  return (load.size - 1) * (exchange(load.costs, load.part) + reduced(load, load.part));
}

double bruck_all_gather(const Load& load) {
  return bruck(load, static_cast<int>(load.value), load.part, true);
}

double ring_all_gather(const Load& load) {
  return (load.size - 1) * exchange(load.costs, load.part);
}

double binomial_broadcast(const Load& load) {
  return down_tree(load.costs, load.size, load.bytes, true);
}

double scatter_bruck_broadcast(const Load& load) {
  // With many participants the root, to which nothing is sent, gets ahead of the
  // others, and its messages delay theirs: in the simulation by three quarters of the
  // array's time.
  const double ahead = load.size > 8 ? 0.75 * load.bytes * load.costs.per_byte : 0;
  return binomial_scatter(load) + bruck(load, 2, load.part, true) + ahead;
}

double scatter_ring_broadcast(const Load& load) {
  return binomial_scatter(load) + ring_all_gather(load);
}

double direct_broadcast(const Load& load) { return direct(load, load.bytes); }

double chain_broadcast(const Load& load) { return going_on(load, load.size - 1); }

double gather_reduce(const Load& load) {
  return up_tree(load.costs, load.size, load.bytes, false) +
         reduced(load, (load.size - 1) * load.bytes);
}

double direct_reduce(const Load& load) {
  return direct(load, load.bytes) + reduced(load, (load.size - 1) * load.bytes);
}

double binomial_reduce(const Load& load) {
  return up_tree(load.costs, load.size, load.bytes, true);
}

double circulant_reduce(const Load& load) {
  return circulant_reduce_scatter(load) + binomial_gather(load);
}

double pairwise_reduce(const Load& load) {
  return pairwise_reduce_scatter(load) + binomial_gather(load);
}

double chain_reduce(const Load& load) { return coming_back(load, load.size, 1); }

double binomial_gather(const Load& load) {
  return up_tree(load.costs, load.size, load.part, false);
}

double binomial_scatter(const Load& load) {
  return down_tree(load.costs, load.size, load.part, false);
}

double direct_gather(const Load& load) { return direct(load, load.part); }

double bruck_all_to_all(const Load& load) {
  double time = copied(load, load.bytes);
  for (int distance = 1; distance < load.size; distance *= 2) {
    int num = 0;
    for (int i = 0; i < load.size; ++i) num += (i & distance) != 0 ? 1 : 0;
    time += copied(load, num * load.part) + exchange(load.costs, num * load.part);
  }
  return time;
}

double pairwise_all_to_all(const Load& load) {
  const int others = load.size - 1, at_once = std::max(static_cast<int>(load.value), 1);
  const double link = on_link(load.costs, load.part);
  double time = others / at_once * exchanges(load.costs, at_once, at_once * link);
  const int rest = others % at_once;
  if (rest != 0) time += exchanges(load.costs, rest, rest * link);
  return time;
}

double dissemination_barrier(const Load& load) {
  return bruck(load, static_cast<int>(load.value), 0, false);
}

}  // namespace estimates

double best_chunk_of_broadcast(const Load& load) {
  return best_chunk(load, load.size - 2, load.costs.overhead, load.costs.per_byte);
}

double best_chunk_of_reduction(const Load& load) {
  return best_chunk(load, 2 * load.size, fixed(load.costs),
                    2 * load.costs.per_byte + load.costs.per_byte_reduced);
}

int most_at_once(double bytes) { return bytes <= 16 << 10 ? 64 : 16; }

// So many that the fixed costs of a round are a twentieth of its time; more would gain
// nothing.
std::size_t best_at_once(const Load& load) {
  const double link = std::max(on_link(load.costs, load.part), load.costs.overhead);
  const double num = std::ceil(20 * fixed(load.costs) / link);
  const int most = std::clamp(load.size - 1, 1, most_at_once(load.part));
  return static_cast<std::size_t>(std::clamp(num, 1.0, 1.0 * most));
}

}  // namespace allhands
