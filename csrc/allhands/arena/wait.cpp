// Waiting for a peer: the rank stays awake for a while, then sleeps on the peer's clock
// (a futex) in slices. After each slice it checks for a failure of the group, a signal,
// the deadline, and peers that are gone.
#include <algorithm>
#include <string>

#include "allhands/arena/arena.hpp"
#include "allhands/base/futex.hpp"
#include "allhands/base/rank_text.hpp"
#include "allhands/base/seconds.hpp"
#include "allhands/host/wait_awake.hpp"

namespace allhands {
namespace {

// The shortest sleep, even if the limit has passed.
constexpr std::chrono::milliseconds kPause{1};
// How much longer than its limit a rank waits once all have come, for ranks that still
// have to pass that on and may be waiting for a CPU.
constexpr std::chrono::milliseconds kPassing{1000};
// After each slice a waiting rank checks whether this many of the ranks that have come
// still run; other ranks check others.
constexpr int kOthersPerLook = 16;

}  // namespace

void Arena::wait(int rank, std::uint32_t clock) { wait(rank, line(rank), clock); }

// Waits for a signal of `rank`.
void Arena::wait(int rank, Signal& theirs, std::uint32_t clock) {
  const auto is_there = [&] { return theirs.has_reached(clock); };
  const auto yield = [this] { placement_->yield(); };
  if (!wait_awake(tuning_, is_there, yield)) wait_asleep(rank, theirs, clock);
}

void Arena::wait_asleep(int rank, Signal& theirs, std::uint32_t clock) {
  placement_->leave_seat();
  tell_awaited(rank, theirs, clock);
  const Wait wait(limits_, &late_notice_);
  while (true) {
    theirs.waiters.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = theirs.clock.load(std::memory_order_seq_cst);
    if (!theirs.has_reached(clock) && !has_failed())
      futex_wait(theirs.clock, seen,
                 std::max<Deadline::Duration>(wait.slice(), kPause));
    theirs.waiters.fetch_sub(1, std::memory_order_relaxed);
    if (theirs.has_reached(clock)) break;
    look_around(wait, clock);
    wait.tell_if_late(
        [&](Deadline::Duration waited) { return late_text(clock, waited); });
  }
  control(this->rank()).awaits.store(0, std::memory_order_relaxed);
}

// Checks everything else that may end a wait; returns if nothing does.
void Arena::look_around(const Wait& wait, std::uint32_t clock) {
  if (elsewhere_ && !has_failed())
    if (const std::optional<Error> error = elsewhere_()) fail(*error);
  if (has_failed()) throw_failure();
  const WaitEnd end = look_at_limits(wait);
  if (end == WaitEnd::Stopped)
    fail_and_throw(ErrorKind::Backend,
                   "rank " + std::to_string(group_.rank) + " closed the group", {});
  const std::vector<int> gone = gone_of(clock);
  if (!gone.empty()) {
    const auto name = [this](int peer) { return describe(peer); };
    // A rank that never used the group may have ended well, and could say so nowhere.
    const auto end_of = [this](int peer, bool) -> std::string {
      const RankControl& theirs = control(peer);
      if (theirs.has_left.load(std::memory_order_acquire) != 0)
        return " left the group";
      const bool was_here = theirs.entered.load(std::memory_order_relaxed) != 0;
      return was_here ? " died" : " ended";
    };
    const std::string problem = tell_of(gone, name, end_of);
    fail_and_throw(ErrorKind::RankFailed, problem + describe_missing(gone), gone);
  }
  if (end == WaitEnd::Expired) throw_timeout(clock);
}

// An interrupt suspends the operation or breaks the group.
WaitEnd Arena::look_at_limits(const Wait& wait) {
  try {
    return wait.look();
  } catch (const Error&) {
    if (may_suspend_) {
      is_suspended_ = true;
      throw Suspended{std::current_exception()};
    }
    fail(Error(ErrorKind::Backend, describe_call() + ": rank " +
                                       std::to_string(group_.rank) +
                                       " was interrupted"));
    throw;
  }
}

// If all have come, this rank is told so within moments, unless some rank is stopped.
void Arena::throw_timeout(std::uint32_t clock) {
  const std::vector<int> absent = missing(clock);
  if (absent.empty()) return;
  const Deadline::Duration waited = limits_.deadline.elapsed();
  bool have_all_come = true;
  for (int peer = 0; peer < size(); ++peer)
    have_all_come = have_all_come && line(peer).has_reached(clock);
  if (have_all_come && waited < limits_.deadline.limit() + kPassing) return;
  fail_and_throw(ErrorKind::Timeout, "timed out: " + describe_wait(waited, absent),
                 absent);
}

// The ranks that are gone and whose absence ends this wait.
std::vector<int> Arena::gone_of(std::uint32_t clock) {
  const Pulse::Duration now = Pulse::now();
  const auto is_gone = [&](int peer) { return this->is_gone(peer, now); };
  if (std::ranges::none_of(watched(clock, kOthersPerLook), is_gone)) return {};
  std::vector<int> gone;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && is_gone(peer)) gone.push_back(peer);
  // What they published before they went still counts, so check once more.
  const std::vector<int> still_watched = watched(clock, size());
  std::erase_if(gone, [&](int peer) {
    return !std::binary_search(still_watched.begin(), still_watched.end(), peer);
  });
  return gone;
}

// Whether the rank left or its process ended, as of a moment ago.
bool Arena::is_gone(int rank, Pulse::Duration now) const {
  RankControl& theirs = control(rank);
  if (theirs.has_left.load(std::memory_order_acquire) != 0 ||
      !allhands::is_alive(process(rank), theirs.pulse, now))
    return true;
  if (theirs.entered.load(std::memory_order_relaxed) != 0 ||
      !has_departed_lately(rank, has_departed_, theirs.pulse, now))
    return false;
  theirs.has_left.store(1, std::memory_order_release);  // on behalf of that rank
  return true;
}

// One notice on behalf of all waiting ranks, made by the first of them; empty on the
// others.
std::string Arena::late_text(std::uint32_t clock, Deadline::Duration waited) const {
  const std::vector<int> absent = missing(clock);
  if (absent.empty()) return "";
  int first = 0;
  while (std::binary_search(absent.begin(), absent.end(), first)) ++first;
  // If a rank in the tree has not told the others that all have come, some may be
  // through already; the ranks below it still wait.
  const int late = absent.front();
  if (tree_ && !tree_->is_leaf(late) && line(late).has_reached(clock))
    first = tree_->children(late).front();
  if (first != rank()) return "";
  return describe_call() + ": " + describe_self() + " has " +
         describe_wait(waited, absent);
}

// The ranks from which this one, or one that it waits for, still needs something; in
// order.
std::vector<int> Arena::needed(std::uint32_t clock) const {
  std::vector<int> ranks;
  const bool is_in_tree = tree_ && meeting_ == clock;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const bool must_tell = is_in_tree && !tree_->is_leaf(peer) &&
                           !control(peer).released.has_reached(clock);
    if (must_tell || !line(peer).has_reached(clock)) ranks.push_back(peer);
  }
  return ranks;
}

// The ranks that are needed. If not all have entered the operation yet, nobody can be
// through with it, so some of the other ranks are watched too, in turn. In rank order.
std::vector<int> Arena::watched(std::uint32_t clock, int num_others) {
  std::vector<int> ranks = needed(clock);
  const bool have_all_come = std::ranges::none_of(
      ranks, [&](int peer) { return !line(peer).has_reached(clock); });
  if (clock != entered_at_ || have_all_come) return ranks;
  for (int i = 0; i < std::min(num_others, size()); ++i) {
    next_watched_ = (next_watched_ + 1) % size();
    if (next_watched_ != rank()) ranks.push_back(next_watched_);
  }
  std::ranges::sort(ranks);
  return ranks;
}

// The ranks that others wait for: those that have not come, except where they only wait
// for others of these; or else those that hold the meeting up.
std::vector<int> Arena::missing(std::uint32_t clock) const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && !line(peer).has_reached(clock)) ranks.push_back(peer);
  return ranks.empty() ? holding_up(clock) : without_held_up(ranks);
}

std::vector<int> Arena::group_ranks(std::vector<int> ranks) const {
  for (int& rank : ranks) rank = group_rank(rank);
  return ranks;
}

std::string Arena::describe_self() const {
  return "rank " + std::to_string(group_.rank) + " (this process)";
}

std::string Arena::describe_call() const {
  return allhands::describe(called_) + " #" + std::to_string(sequence_) + " on group " +
         group_.quoted();
}

// "waited 5 s (limit 30 s); missing [3]", and what they did last.
std::string Arena::describe_wait(Deadline::Duration waited,
                                 const std::vector<int>& absent) const {
  return "waited " + seconds(waited) + " (limit " + seconds(limits_.deadline.limit()) +
         "); missing [" + counted_ranges(group_ranks(absent), group_.size()) + "]" +
         describe_missing(absent);
}

// "; rank 3 was last in broadcast #16, rank 4 has called nothing on this group yet"
std::string Arena::describe_missing(const std::vector<int>& ranks) const {
  const auto name = [this](int rank) {
    return "rank " + std::to_string(group_rank(rank));
  };
  const auto last = [this](int rank, bool is_plural) -> std::string {
    const std::uint64_t entered = control(rank).entered.load(std::memory_order_relaxed);
    if (entered == 0)
      return std::string(is_plural ? " have" : " has") +
             " called nothing on this group yet";
    return std::string(is_plural ? " were" : " was") + " last in " +
           name_of(static_cast<Op>(entered & 0xff)) + " #" +
           std::to_string(entered >> 8);
  };
  return "; " + tell_of(ranks, name, last);
}

}  // namespace allhands
