#include "allhands/host/placement.hpp"

#include <array>

namespace allhands {
namespace {

using std::chrono::milliseconds;
using Clock = Placement::Clock;

// Long enough for another program on that CPU to get its turn.
constexpr milliseconds kTrial{10};
// The pause after a move, so that the others see it; a move takes some 20 us itself.
constexpr milliseconds kPause{1};
// The pause after a move in vain, which takes some 3 ms.
constexpr milliseconds kRest{100};

using Counts = std::array<int, CPU_SETSIZE>;

Counts ranks_per_cpu(const std::vector<Seat*>& seats) {
  Counts counts{};
  for (const Seat* seat : seats) {
    const std::int32_t cpu = seat->load(std::memory_order_relaxed) - 1;
    if (cpu >= 0 && cpu < CPU_SETSIZE) ++counts[static_cast<std::size_t>(cpu)];
  }
  return counts;
}

// One of `allowed` with the fewest ranks, if it has at least two fewer than `here`;
// else `here`. Of several CPUs the next higher one, which is likely to be near in
// memory.
int better_cpu(const Counts& ranks_on, const cpu_set_t& allowed, int here) {
  const auto ranks = [&](int cpu) { return ranks_on[static_cast<std::size_t>(cpu)]; };
  int best = here;
  for (int step = 1; step < CPU_SETSIZE; ++step) {
    const int cpu = (here + step) % CPU_SETSIZE;
    if (CPU_ISSET(cpu, &allowed) && ranks(cpu) < ranks(best)) best = cpu;
  }
  return ranks(here) - ranks(best) >= 2 ? best : here;
}

bool has_mask(const cpu_set_t& mask) {
  cpu_set_t now;
  return sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&now, &mask);
}

// Only a hint, not a pin: afterwards this thread may run on the same CPUs as before.
void move_to(int cpu, const cpu_set_t& allowed) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  if (sched_setaffinity(0, sizeof(only), &only) != 0) return;
  if (!has_mask(only)) return;  // other code has set another mask meanwhile
  // The mask that a thread asks for still limits it when its cpuset gets more CPUs
  // later. So ask for all CPUs, and for `allowed` only if the cpuset does not reduce
  // all to that.
  cpu_set_t all;
  for (int any = 0; any < CPU_SETSIZE; ++any) CPU_SET(any, &all);
  sched_setaffinity(0, sizeof(all), &all);
  if (!has_mask(allowed)) sched_setaffinity(0, sizeof(allowed), &allowed);
}

}  // namespace

void Placement::look() {
  yields_left_ = yields_per_look_;
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE) return;
  const std::int32_t seat = here + 1;
  Seat& mine = *seats_[rank_];
  if (mine.load(std::memory_order_relaxed) != seat)
    mine.store(seat, std::memory_order_relaxed);
  for (std::size_t rank = rank_ + 1; rank < seats_.size(); ++rank)
    if (seats_[rank]->load(std::memory_order_relaxed) == seat) return;
  const Clock::time_point start = Clock::now();
  const Clock::duration now = start.time_since_epoch();
  Clock::duration next = moves_.next.load(std::memory_order_relaxed);
  cpu_set_t allowed;
  if (now < next || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int there = better_cpu(ranks_per_cpu(seats_), allowed, here);
  if (there == here || !moves_.next.compare_exchange_strong(next, now + kPause)) return;
  mine.store(there + 1, std::memory_order_relaxed);
  move_to(there, allowed);
  is_on_trial_ = true;
  former_cpu_ = here;
  trial_end_ = start + kTrial;
  judge(start);
}

void Placement::yield_on_trial() {
  const Clock::time_point start = Clock::now();
  sched_yield();
  judge(start);
}

// Judges a move, or a yield on trial, that began at `start`.
void Placement::judge(Clock::time_point start) {
  const Clock::time_point now = Clock::now();
  const bool is_in_vain = now - start > slice_;
  if (!is_in_vain && now < trial_end_) return;
  is_on_trial_ = false;
  if (!is_in_vain) return;
  moves_.next.store(now.time_since_epoch() + kRest, std::memory_order_relaxed);
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  if (!CPU_ISSET(former_cpu_, &allowed)) return;
  seats_[rank_]->store(former_cpu_ + 1, std::memory_order_relaxed);
  move_to(former_cpu_, allowed);
}

}  // namespace allhands
