// Who finds something that computes on its CPU sleeps instead of yielding to it.
#include "allhands/host/contention.hpp"

#include <thread>

#include "allhands/host/wait_awake.hpp"
#include "check.hpp"

using namespace allhands;
using std::chrono::milliseconds;

namespace {

constexpr auto kMoment = std::chrono::microseconds(1);

// Notes a long yield then; whether that is held for exactly `expected`.
bool lasts(Contention& contention, Contention::Clock::time_point then,
           Contention::Clock::duration expected) {
  contention.note_long_yield(then);
  return contention.is_likely(then + expected - kMoment) &&
         !contention.is_likely(then + expected);
}

void test_a_long_yield_counts_for_a_while_and_soon_for_longer() {
  Contention contention;
  auto now = Contention::Clock::now();
  CHECK(!contention.is_likely(now));
  for (const int expected : {10, 20, 40, 80, 160, 320, 320}) {
    CHECK(lasts(contention, now, milliseconds(expected)));
    now += milliseconds(expected) + Contention::kSoon - kMoment;
  }
  CHECK(lasts(contention, now + Contention::kLongestWhile + Contention::kSoon,
              Contention::kFirstWhile));
}

// How often a wait in vain yields, where a yield takes so long.
int yields_of(Contention& contention, milliseconds length) {
  Tuning tuning = Tuning::for_ranks(2, 2);
  tuning.yields = 3;
  int count = 0;
  const auto yield = [&] {
    ++count;
    std::this_thread::sleep_for(length);
  };
  CHECK(!wait_awake(tuning, [] { return false; }, yield, contention));
  return count;
}

void test_a_wait_that_yielded_in_vain_for_long_ends_and_the_next_does_not_begin() {
  Contention contention;
  const auto before = Contention::Clock::now();
  CHECK(yields_of(contention, 2 * Contention::kSlice) == 1);
  CHECK(contention.is_likely(before + Contention::kFirstWhile));
  contention.note_long_yield(before + std::chrono::hours(1));
  CHECK(yields_of(contention, milliseconds(0)) == 0);
}

void test_what_is_there_is_seen_all_the_same() {
  Contention contention;
  contention.note_long_yield(Contention::Clock::now() + std::chrono::hours(1));
  Tuning tuning = Tuning::for_ranks(2, 2);
  tuning.spins = 0;
  CHECK(wait_awake(tuning, [] { return true; }, sched_yield, contention));
  int looks = 0;
  const auto at_second_look = [&looks] { return ++looks == 2; };
  Contention none;
  tuning.yields = 1'000'000;
  CHECK(wait_awake(tuning, at_second_look, [] {}, none));
}

}  // namespace

int main() {
  test_a_long_yield_counts_for_a_while_and_soon_for_longer();
  test_a_wait_that_yielded_in_vain_for_long_ends_and_the_next_does_not_begin();
  test_what_is_there_is_seen_all_the_same();
}
