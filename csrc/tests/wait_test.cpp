// What ends a wait, and what it says while it lasts.
#include "allhands/base/wait.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "allhands/comm/turns.hpp"
#include "check.hpp"

using namespace allhands;

namespace {

constexpr std::chrono::hours kLong{1};

bool wants_out = false;
bool is_asked = false;
Interrupt interrupt = [] {
  is_asked = true;
  return wants_out;
};

template <class Call>
bool is_interrupted(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::Interrupted;
  }
  return false;
}

void test_what_ends_a_wait() {
  std::atomic<bool> stop = false;
  const Limits open = {Deadline::after(kLong), interrupt, &stop};
  CHECK(Wait(open).look() == WaitEnd::None && is_asked);
  stop = true;
  CHECK(Wait(open).look() == WaitEnd::Stopped);
  wants_out = true;
  CHECK(is_interrupted([&] { Wait(open).look(); }));
  wants_out = false;
  const Limits spent = {Deadline::after({})};
  CHECK(Wait(spent).look() == WaitEnd::Expired);
  CHECK(Wait(spent).slice() == Deadline::Duration::zero());
  const Limits endless = {Deadline::never()};
  CHECK(Wait(endless).look() == WaitEnd::None);
  CHECK(Wait(endless).slice() == Wait::kSlice);
}

// A call that need not wait reads no clock.
void test_a_deadline_runs_from_the_first_slice() {
  const Limits limits = {Deadline::after_first_look(std::chrono::milliseconds(20))};
  const Wait wait(limits);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(wait.slice() > Deadline::Duration::zero());
  while (wait.look() == WaitEnd::None) std::this_thread::yield();
  CHECK(wait.look() == WaitEnd::Expired);
}

void test_a_busy_wait_looks_around_once_a_slice() {
  const Limits limits = {Deadline::never()};
  Wait wait(limits);
  CHECK(!wait.is_slice_over());
  const auto start = std::chrono::steady_clock::now();
  while (!wait.is_slice_over()) std::this_thread::yield();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::minutes(1));
  const Limits spent = {Deadline::after({})};
  CHECK(Wait(spent).is_slice_over());
}

void test_sleeping_until_it_is_there() {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_there = false;
  const auto sleep = [&](const Limits& limits) {
    std::unique_lock lock(mutex);
    return Wait(limits).sleep_on(changed, lock, [&] { return is_there; });
  };
  CHECK(sleep({Deadline::after({})}) == WaitEnd::Expired);
  wants_out = true;
  CHECK(is_interrupted([&] { sleep({Deadline::after(kLong), interrupt}); }));
  wants_out = false;
  std::thread other([&] {
    const std::lock_guard lock(mutex);
    is_there = true;
    changed.notify_all();
  });
  CHECK(sleep({Deadline::after(kLong), interrupt}) == WaitEnd::None);
  other.join();
  CHECK(sleep({Deadline::after({})}) == WaitEnd::None);
}

// The interrupt may run any code, such as what takes the very lock.
std::mutex shared_mutex;

void test_the_interrupt_runs_under_no_lock() {
  std::condition_variable changed;
  std::unique_lock lock(shared_mutex);
  const Interrupt takes_the_lock = [] {
    const std::lock_guard held(shared_mutex);
    return true;
  };
  const Limits limits = {Deadline::after(kLong), takes_the_lock};
  CHECK(is_interrupted(
      [&] { Wait(limits).sleep_on(changed, lock, [] { return false; }); }));
  CHECK(lock.owns_lock());
}

// The wait is the parent's, even if no exception ends it.
void test_a_child_that_the_interrupt_forks_leaves_the_wait() {
  static pid_t child;
  const Interrupt forks = [] {
    child = fork();
    return false;
  };
  const Limits limits = {Deadline::after(kLong), forks};
  const Wait wait(limits);
  bool has_left = false;
  try {
    CHECK(wait.look() == WaitEnd::None);
  } catch (const Error& error) {
    has_left = error.kind() == ErrorKind::Backend;
  }
  if (child == 0) _exit(has_left ? 0 : 1);
  int status = 1;
  CHECK(!has_left && waitpid(child, &status, 0) == child && status == 0);
}

std::vector<std::string> said;

void test_a_late_notice_comes_half_as_often_each_time() {
  LateNotice notice([](const std::string& text) { said.push_back(text); },
                    std::chrono::seconds(10));
  const auto ask = [&notice](int seconds) {
    return notice.is_due(std::chrono::seconds(seconds));
  };
  CHECK(!ask(9) && ask(10) && !ask(10) && !ask(19) && ask(25) && !ask(39) && ask(40));
  CHECK(!LateNotice().is_due(kLong));
  LateNotice at_once([](const std::string& text) { said.push_back(text); }, {});
  const Limits limits = {Deadline::never()};
  Wait(limits, &at_once).tell_if_late([](Deadline::Duration) { return "late"; });
  Wait(limits).tell_if_late([](Deadline::Duration) { return "nobody hears"; });
  at_once.say("");
  CHECK(said == std::vector<std::string>{"late"});
}

void test_turns_are_idle_once_each_has_passed() {
  Turns turns;
  CHECK(turns.wait_until_idle({Deadline::after({})}) == WaitEnd::None);
  turns.wait(turns.take(), {Deadline::after({})});
  CHECK(turns.wait_until_idle({Deadline::after({})}) == WaitEnd::Expired);
  wants_out = true;
  CHECK(is_interrupted(
      [&] { turns.wait_until_idle({Deadline::after(kLong), interrupt}); }));
  wants_out = false;
  std::thread other([&turns] { turns.pass(); });
  CHECK(turns.wait_until_idle({Deadline::after(kLong)}) == WaitEnd::None);
  other.join();
}

void test_a_turn_that_is_waited_for_in_vain_is_given_up() {
  Turns turns;
  turns.wait(turns.take(), {Deadline::after({})});
  const auto kind_of = [&turns](const Limits& limits) {
    try {
      turns.wait(turns.take(), limits);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::Value;
  };
  const std::atomic<bool> stop = true;
  wants_out = true;
  CHECK(kind_of({Deadline::after({})}) == ErrorKind::Timeout);
  CHECK(kind_of({Deadline::after(kLong), interrupt}) == ErrorKind::Interrupted);
  CHECK(kind_of({Deadline::after(kLong), nullptr, &stop}) == ErrorKind::Backend);
  wants_out = false;
  turns.pass();
  turns.wait(turns.take(), {Deadline::after({})});  // the three before it count as had
}

}  // namespace

int main() {
  test_what_ends_a_wait();
  test_a_deadline_runs_from_the_first_slice();
  test_a_busy_wait_looks_around_once_a_slice();
  test_sleeping_until_it_is_there();
  test_the_interrupt_runs_under_no_lock();
  test_a_child_that_the_interrupt_forks_leaves_the_wait();
  test_a_late_notice_comes_half_as_often_each_time();
  test_turns_are_idle_once_each_has_passed();
  test_a_turn_that_is_waited_for_in_vain_is_given_up();
}
