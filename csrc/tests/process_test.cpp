#include "allhands/host/process.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "allhands/host/pulse.hpp"
#include "check.hpp"

namespace {

// Runs `body(pid)` while a child lives that may run on one CPU alone.
template <class Body>
void with_a_pinned_child(int cpu, Body body) {
  int ready[2], end[2];
  CHECK(pipe(ready) == 0 && pipe(end) == 0);
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    const bool is_pinned =
        sched_setaffinity(0, sizeof(set), &set) == 0 && write(ready[1], &byte, 1) == 1;
    close(end[1]);
    _exit(is_pinned && read(end[0], &byte, 1) == 0 ? 0 : 1);
  }
  CHECK(child > 0);
  CHECK(read(ready[0], &byte, 1) == 1);
  body(child);
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) close(fd);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// Ranks that are pinned to one CPU each have as many as they are.
void test_cpus_of_pinned_processes() {
  using allhands::num_cpus;
  cpu_set_t own;
  CHECK(sched_getaffinity(0, sizeof(own), &own) == 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &own)) --last;
  with_a_pinned_child(last, [&](pid_t pinned) {
    allhands::ProcessIdentity child = allhands::this_process();
    child.pid = pinned;
    CHECK(num_cpus({child}) == 1);
    CHECK(num_cpus({child, child}) == 1);
    CHECK(num_cpus({allhands::this_process(), child}) == num_cpus());
    if (num_cpus() == 1) return;
    int first = 0;
    while (!CPU_ISSET(first, &own)) ++first;
    with_a_pinned_child(first, [&](pid_t other) {
      allhands::ProcessIdentity second = child;
      second.pid = other;
      CHECK(num_cpus({child, second}) == 2);
    });
  });
}

// Also for who has no file descriptor left to look into /proc.
void test_a_child_that_ended_is_dead_before_it_is_reaped() {
  using allhands::is_alive;
  int told[2], end[2];
  CHECK(pipe(told) == 0 && pipe(end) == 0);
  const pid_t pid = fork();
  allhands::ProcessIdentity child;
  if (pid == 0) {
    const std::uint64_t start = allhands::this_process().start;
    const bool is_told = write(told[1], &start, sizeof(start)) == sizeof(start);
    close(end[1]);
    _exit(is_told && read(end[0], told, 1) == 0 ? 0 : 1);
  }
  child.pid = pid;
  CHECK(read(told[0], &child.start, sizeof(child.start)) == sizeof(child.start));
  rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none = {0, limit.rlim_max};
  CHECK(is_alive(child) && setrlimit(RLIMIT_NOFILE, &none) == 0);
  CHECK(is_alive(child));
  for (const int fd : {told[0], told[1], end[0], end[1]}) close(fd);
  siginfo_t info;
  CHECK(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK(!is_alive(child) && setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(!is_alive(child));
  CHECK(waitpid(pid, nullptr, 0) == pid && !is_alive(child));
}

// An answer is good for a moment, for all who ask; an end for ever.
void test_a_pulse_is_asked_for_once() {
  using namespace allhands;
  Pulse pulse{};
  const ProcessIdentity nobody = {.host = {}, .pid = 1 << 30};  // above the largest pid
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  pulse.asked_at = now + std::chrono::hours(1);  // that cannot be
  CHECK(!is_alive(nobody, pulse) && pulse.has_ended == 1);
  Pulse other{};
  other.asked_at = now;
  const auto start = std::chrono::steady_clock::now();
  while (is_alive(nobody, other))
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  CHECK(std::chrono::steady_clock::now().time_since_epoch() - now >= Pulse::kFresh);
  other.asked_at = std::chrono::steady_clock::now().time_since_epoch();
  CHECK(!is_alive(nobody, other));
  CHECK(is_alive(this_process(), other));  // whatever the memory says
}

// Another process under the number of one that has ended is found out after a pause, as
// the question that is asked meanwhile cannot tell them apart.
void test_a_pulse_tells_processes_apart_now_and_then() {
  using namespace allhands;
  ProcessIdentity other = this_process();
  ++other.start;
  const Pulse::Duration now = Pulse::now();
  Pulse pulse{};
  pulse.known_at = now;
  CHECK(is_alive(other, pulse, now) && pulse.asked_at.load() == now);
  CHECK(is_alive(other, pulse, now + Pulse::kFresh));
  CHECK(!is_alive(other, pulse, now + Pulse::kPause) && pulse.has_ended == 1);
}

// A rank reads the clock once for all that it looks at; another one may be ahead of it.
void test_a_pulse_of_a_moment_ahead_is_relied_on() {
  using namespace allhands;
  const ProcessIdentity nobody = {.host = {}, .pid = 1 << 30};  // above the largest pid
  const Pulse::Duration now = Pulse::now();
  Pulse pulse{};
  pulse.asked_at = now + std::chrono::milliseconds(5);
  CHECK(is_alive(nobody, pulse, now) && pulse.has_ended == 0);
}

// Ranks that come about the same time do not look for each other's departure.
void test_a_departure_is_looked_for_after_a_pause() {
  using namespace allhands;
  Pulse pulse{};
  int num_looks = 0;
  const HasDeparted look = [&](int) { return ++num_looks > 1; };
  const Pulse::Duration now = Pulse::now();
  CHECK(!has_departed_lately(3, look, pulse, now) && num_looks == 0);
  CHECK(!has_departed_lately(3, look, pulse, now + Pulse::kPause / 2));
  CHECK(!has_departed_lately(3, look, pulse, now + Pulse::kPause) && num_looks == 1);
  CHECK(has_departed_lately(3, look, pulse, now + 2 * Pulse::kPause));
  CHECK(!has_departed_lately(3, {}, pulse, now + 3 * Pulse::kPause));
}

// Groups keep the name of each rank's host, and most ranks have the same.
void test_copies_of_a_host_name_share_its_text() {
  using namespace allhands;
  const HostName here = this_process().host, copy = here, again = this_process().host;
  CHECK(!here.text().empty() && &copy.text() == &here.text());
  CHECK(again == here && &again.text() != &here.text());
  CHECK(!(HostName("elsewhere") == here) && HostName() == HostName(""));
}

}  // namespace

int main() {
  test_copies_of_a_host_name_share_its_text();
  test_a_pulse_is_asked_for_once();
  test_a_pulse_tells_processes_apart_now_and_then();
  test_a_pulse_of_a_moment_ahead_is_relied_on();
  test_a_departure_is_looked_for_after_a_pause();
  test_a_child_that_ended_is_dead_before_it_is_reaped();
  test_cpus_of_pinned_processes();
}
