// Ranks that wait awake spread over the CPUs. The others' seats are made up here, so
// that what one rank does about them is known. The kernel may move a thread too, if
// seldom at just that moment: what comes out most often counts.
#include "allhands/host/placement.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "ranks.hpp"

using namespace allhands;
using namespace allhands::testing;

namespace {

constexpr int kTries = 21;
constexpr int kNobody = -1;
// Other programs' time slices are not what these tests are about.
constexpr std::chrono::hours kNoSlice{1};

int full, empty;  // the two CPUs of these tests

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

cpu_set_t mask() {
  cpu_set_t set;
  CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
  return set;
}

void set_mask(const cpu_set_t& set) {
  CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

bool has_mask(const cpu_set_t& set) {
  const cpu_set_t now = mask();
  return CPU_EQUAL(&now, &set);
}

void start_on_full(const cpu_set_t& allowed) {
  set_mask(set_of({full}));
  set_mask(allowed);
}

template <class Value>
Value most_often(std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The CPU that the last of the ranks is on, and says to be on, when it has yielded once
// on `full`. Where the others are comes first.
int cpu_after_yield(const std::vector<int>& others, const cpu_set_t& allowed, int rank,
                    std::uint64_t yields_per_look = 1) {
  std::vector<int> cpus, seen;
  for (int i = 0; i < kTries; ++i) {
    std::vector<Seat> seats(others.size() + 1);
    std::vector<Seat*> pointers;
    for (Seat& seat : seats) pointers.push_back(&seat);
    const auto mine = pointers.begin() + rank;
    std::rotate(mine, pointers.end() - 1, pointers.end());
    for (std::size_t other = 0; other < others.size(); ++other)
      seats[other] = others[other] + 1;
    Moves moves{};
    Placement placement(pointers, moves, rank, yields_per_look, kNoSlice);
    start_on_full(allowed);
    placement.yield();
    cpus.push_back(sched_getcpu());
    seen.push_back(seats.back() - 1);
    CHECK(has_mask(allowed));
    placement.leave_seat();
    CHECK(seats.back() == 0);
  }
  if (yields_per_look == 1) CHECK(most_often(seen) == most_often(cpus));
  return most_often(cpus);
}

void test_the_last_rank_of_a_fuller_cpu_moves() {
  const cpu_set_t both = set_of({full, empty});
  CHECK(cpu_after_yield({full, full, empty}, both, 3) == empty);
  CHECK(cpu_after_yield({full, empty, full}, both, 3) == empty);
  CHECK(cpu_after_yield({full, full, empty}, both, 2) == empty);
  CHECK(cpu_after_yield({full}, both, 1) == empty);
  CHECK(cpu_after_yield({full, kNobody, kNobody}, both, 3) == empty);
}

void test_no_rank_moves_without_need() {
  const cpu_set_t both = set_of({full, empty});
  CHECK(cpu_after_yield({full, full, empty}, both, 0) == full);  // not the last
  CHECK(cpu_after_yield({full, full, empty}, both, 1) == full);
  CHECK(cpu_after_yield({full, empty, empty}, both, 3) == full);  // even
  CHECK(cpu_after_yield({full, empty}, both, 2) == full);         // as even as can be
  CHECK(cpu_after_yield({full, full}, set_of({full}), 2) == full);
  CHECK(cpu_after_yield({full, full}, both, 2, 0) == full);  // never looks
  CHECK(cpu_after_yield({full, full}, both, 2, 2) == full);  // not yet
}

// Where one whose every yield takes too long is after `yields`, the first a look.
int cpu_after_trial(int yields) {
  const cpu_set_t both = set_of({full, empty});
  std::vector<int> cpus;
  std::vector<Placement::Clock::duration> rests;
  for (int i = 0; i < kTries; ++i) {
    std::vector<Seat> seats(2);
    seats[0] = full + 1;
    Moves moves{};
    Placement placement({&seats[0], &seats[1]}, moves, 1, 1,
                        std::chrono::nanoseconds(-1));
    const auto before = Placement::Clock::now().time_since_epoch();
    start_on_full(both);
    for (int k = 0; k < yields; ++k) placement.yield();
    cpus.push_back(sched_getcpu());
    CHECK(has_mask(both));
    rests.push_back(moves.next.load() - before);
  }
  CHECK(most_often(rests) >= std::chrono::milliseconds(100));
  return most_often(cpus);
}

void test_a_rank_goes_back_from_a_cpu_that_is_not_free() {
  CHECK(cpu_after_trial(1) == full);
  CHECK(cpu_after_trial(3) == full);
}

void test_nobody_moves_while_the_group_rests() {
  std::vector<int> cpus;
  for (int i = 0; i < kTries; ++i) {
    std::vector<Seat> seats(2);
    seats[0] = full + 1;
    Moves moves{};
    moves.next = Placement::Clock::now().time_since_epoch() + kNoSlice;
    Placement placement({&seats[0], &seats[1]}, moves, 1, 1, kNoSlice);
    start_on_full(set_of({full, empty}));
    placement.yield();
    cpus.push_back(sched_getcpu());
  }
  CHECK(most_often(cpus) == full);
}

void test_collectives_go_on_while_ranks_move() {
  const cpu_set_t both = set_of({full, empty});
  Tuning tuning = Tuning::for_ranks(4);
  tuning.yields_per_look = 1;
  run_arenas(4, tuning, [&](Arena& arena) {
    for (int i = 0; i < 10; ++i) {
      start_on_full(both);
      for (int k = 0; k < 20; ++k) {
        std::vector<float> data(3, static_cast<float>(arena.rank()));
        const Buffer buffer = buffer_of(data);
        all_reduce(arena, buffer, buffer, ReduceOp::Sum, 1, soon());
        CHECK(data[2] == 6);
      }
      CHECK(has_mask(both));
    }
  });
}

}  // namespace

int main() {
  const cpu_set_t allowed = mask();
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  if (cpus.size() < 2) {
    std::puts("skipped: this needs two CPUs");
    return 0;
  }
  full = cpus[0];
  empty = cpus[1];
  test_the_last_rank_of_a_fuller_cpu_moves();
  test_no_rank_moves_without_need();
  test_a_rank_goes_back_from_a_cpu_that_is_not_free();
  test_nobody_moves_while_the_group_rests();
  test_collectives_go_on_while_ranks_move();
}
