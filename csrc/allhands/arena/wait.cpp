// Waiting for a peer: spin, then yield, then sleep.
//
// When both ranks run, a peer's store arrives within some 100 ns, so a short spin makes
// the fast path free of system calls. When ranks outnumber the CPUs a spin only keeps
// the peer from running; sched_yield lets it run in about a microsecond. After that the
// thread sleeps on the peer's clock in slices, and looks around after each: for the
// failure of the group, a signal, the deadline, and peers that are gone.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "allhands/arena/arena.hpp"
#include "allhands/base/futex.hpp"
#include "allhands/base/seconds.hpp"

namespace allhands {
namespace {

// Clocks wrap around; no rank is ever 2^31 publications ahead of another.
bool has_reached(std::uint32_t clock, std::uint32_t target) {
  return static_cast<std::int32_t>(clock - target) >= 0;
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// A yield to a program that computes lasts its whole time slice, some milliseconds; 300
// of them would be a second in which we neither see that a peer has died nor get the
// CPU as soon as a peer wakes us.
constexpr std::chrono::milliseconds kLongestYielding{5};

std::string list(const std::vector<int>& ranks) {
  std::string text = "[";
  for (const int rank : ranks)
    text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

}  // namespace

void Arena::wait(int rank, std::uint32_t clock) {
  const Line& theirs = line(rank);
  for (std::uint64_t i = 0; i < tuning_.spins; ++i) {
    if (has_reached(theirs.clock.load(std::memory_order_acquire), clock)) return;
    pause_cpu();
  }
  wait_slowly(rank, clock);
}

void Arena::wait_slowly(int rank, std::uint32_t clock) {
  Line& theirs = line(rank);
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 1; i <= tuning_.yields; ++i) {
    if (has_reached(theirs.clock.load(std::memory_order_acquire), clock)) return;
    sched_yield();
    if (i % 8 == 0 && std::chrono::steady_clock::now() - start > kLongestYielding)
      break;
  }
  while (true) {
    theirs.waiters.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = theirs.clock.load(std::memory_order_seq_cst);
    if (!has_reached(seen, clock) && !has_failed()) {
      const Deadline::Duration slice = std::chrono::milliseconds(kInterruptSliceMs);
      futex_wait(theirs.clock, seen, std::min(slice, limits_.deadline.remaining()));
    }
    theirs.waiters.fetch_sub(1, std::memory_order_relaxed);
    if (has_reached(theirs.clock.load(std::memory_order_acquire), clock)) return;
    look_around(clock);
  }
}

// What else may end a wait; returns if nothing does.
void Arena::look_around(std::uint32_t clock) {
  if (has_failed()) throw_failure();
  if (limits_.interrupt != nullptr && limits_.interrupt()) {
    fail(Error(ErrorKind::Backend, describe_call() + ": rank " +
                                       std::to_string(rank()) + " was interrupted"));
    throw Error(ErrorKind::Interrupted, "interrupted");
  }
  if (limits_.stop != nullptr && limits_.stop->load(std::memory_order_relaxed))
    fail_and_throw(ErrorKind::Backend,
                   "rank " + std::to_string(rank()) + " closed the group", {});
  std::vector<int> gone;
  for (const int peer : missing(clock))
    if (post(peer).has_left.load(std::memory_order_acquire) != 0 ||
        !membership_.is_peer_alive(peer))
      gone.push_back(peer);
  // What they published before they went still counts: look once more.
  const std::vector<int> absent = missing(clock);
  std::erase_if(gone, [&](int peer) {
    return std::find(absent.begin(), absent.end(), peer) == absent.end();
  });
  if (!gone.empty()) {
    std::string problem;
    for (const int peer : gone) {
      const bool left = post(peer).has_left.load(std::memory_order_acquire) != 0;
      problem += (problem.empty() ? "" : ", ") + membership_.describe(peer) +
                 (left ? " left the group" : " died");
    }
    fail_and_throw(ErrorKind::RankFailed, problem + describe_missing(gone), gone);
  }
  if (limits_.deadline.is_expired() && !absent.empty())
    fail_and_throw(ErrorKind::Timeout,
                   "waited " + seconds(limits_.deadline.elapsed()) + " (limit " +
                       seconds(limits_.deadline.limit()) + "); missing " +
                       list(absent) + describe_missing(absent),
                   absent);
}

std::vector<int> Arena::missing(std::uint32_t clock) const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() &&
        !has_reached(line(peer).clock.load(std::memory_order_acquire), clock))
      ranks.push_back(peer);
  return ranks;
}

std::string Arena::describe_call() const {
  return allhands::describe(descriptor_) + " #" + std::to_string(sequence_) +
         " on group '" + membership_.name + "'";
}

// "; rank 3 was last in broadcast #16, rank 4 has not called anything yet"
std::string Arena::describe_missing(const std::vector<int>& ranks) const {
  std::string text;
  for (const int peer : ranks) {
    const std::uint64_t entered = post(peer).entered.load(std::memory_order_relaxed);
    text += (text.empty() ? "; rank " : ", rank ") + std::to_string(peer);
    if (entered == 0)
      text += " has called nothing on this group yet";
    else
      text += std::string(" was last in ") + name_of(static_cast<Op>(entered & 0xff)) +
              " #" + std::to_string(entered >> 8);
  }
  return text;
}

}  // namespace allhands
