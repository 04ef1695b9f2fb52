// Who finds something that computes on its CPU sleeps instead of yielding to it.
#include "allhands/host/contention.hpp"

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

// As where the kernel lets one of several ranks wait now and then.
void test_a_long_yield_after_many_waits_does_not_count() {
  Contention contention;
  const auto now = Contention::Clock::now();
  const auto wait = [&](std::uint32_t times) {
    for (std::uint32_t i = 0; i < times; ++i) contention.note_wait();
    contention.note_long_yield(now);
  };
  wait(Contention::kFew + 1);
  CHECK(!contention.is_likely(now));
  wait(Contention::kFew);
  CHECK(contention.is_likely(now));
}

// How often a wait in vain yields, where a yield takes so long and nothing else does.
int yields_of(Contention& contention, Contention::Clock::time_point& now,
              milliseconds length) {
  Tuning tuning = Tuning::for_ranks(2, 2);
  tuning.yields = 3;
  int count = 0;
  const auto yield = [&] {
    ++count;
    now += length;
  };
  const auto clock = [&] { return now; };
  CHECK(!wait_awake(tuning, [] { return false; }, yield, contention, clock));
  return count;
}

void test_a_wait_that_yielded_in_vain_for_long_ends_and_the_next_does_not_begin() {
  Contention contention;
  auto now = Contention::Clock::now();
  CHECK(yields_of(contention, now, 2 * Contention::kSlice) == 1);
  CHECK(contention.is_likely(now + Contention::kFirstWhile - kMoment));
  CHECK(yields_of(contention, now, milliseconds(0)) == 0);
  now += Contention::kFirstWhile;
  CHECK(yields_of(contention, now, milliseconds(0)) == 3);
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

void test_waits_that_yield_are_counted() {
  Contention contention;
  auto now = Contention::Clock::now();
  for (std::uint32_t i = 0; i <= Contention::kFew; ++i)
    CHECK(yields_of(contention, now, milliseconds(0)) == 3);
  CHECK(yields_of(contention, now, 2 * Contention::kSlice) == 1);
  CHECK(!contention.is_likely(now));
}

}  // namespace

int main() {
  test_a_long_yield_counts_for_a_while_and_soon_for_longer();
  test_a_long_yield_after_many_waits_does_not_count();
  test_a_wait_that_yielded_in_vain_for_long_ends_and_the_next_does_not_begin();
  test_what_is_there_is_seen_all_the_same();
  test_waits_that_yield_are_counted();
}
