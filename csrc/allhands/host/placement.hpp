// Which CPUs the ranks of a group run on.
//
// If ranks outnumber CPUs, they wait by yielding. Then no CPU is ever idle, so the
// kernel leaves the ranks where it once put them. With 3 ranks on one of two CPUs and 1
// on the other, an operation takes up to twice as long as with 2 and 2, while the
// single rank yields to nobody. Two ranks that woke up on the same one of two CPUs stay
// there for some 20 ms, and take four times as long. So a rank that yields checks now
// and then where the others are. If a CPU has two ranks more than another CPU, its last
// rank moves there.
//
// A rank cannot know beforehand whether another program computes there. So the move is
// on trial: if the move or a yield takes as long as a time slice, the rank goes back,
// and no rank of the group moves for a while. That it was another rank, busy with large
// arrays, cannot be told apart; so the while is short.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace allhands {

// The CPU that a rank was on when it last checked, plus one; 0 while the rank does not
// wait awake.
using Seat = std::atomic<std::int32_t>;

// What the ranks of a group share about their moves; in shared memory, zero at first.
struct Moves {
  using Duration = std::chrono::steady_clock::duration;

  std::atomic<Duration> next;  // time of the earliest next move, on the steady clock
};

// One rank's view of which CPUs the ranks run on. Thread rule: one thread at a time,
// which is the thread that moves.
class Placement {
 public:
  using Clock = std::chrono::steady_clock;

  // `seats`, of all ranks, and `moves` are in shared memory. Checks at one of
  // `yields_per_look` yields; 0: never. During a yield longer than `slice`, something
  // computed.
  Placement(std::vector<Seat*> seats, Moves& moves, int rank,
            std::uint64_t yields_per_look,
            Clock::duration slice = std::chrono::milliseconds(1))
      : seats_(std::move(seats)),
        moves_(moves),
        rank_(static_cast<std::size_t>(rank)),
        yields_per_look_(yields_per_look),
        slice_(slice),
        yields_left_(yields_per_look) {}

  // Lets another thread of this CPU run.
  void yield() {
    if (is_on_trial_) return yield_on_trial();
    if (yields_per_look_ != 0 && --yields_left_ == 0) look();
    sched_yield();
  }
  // Call when this rank is about to sleep, and so takes no CPU from the others.
  void leave_seat() {
    is_on_trial_ = false;
    seats_[rank_]->store(0, std::memory_order_relaxed);
  }

 private:
  void look();
  void yield_on_trial();
  void judge(Clock::time_point start);

  const std::vector<Seat*> seats_;
  Moves& moves_;
  const std::size_t rank_;
  const std::uint64_t yields_per_look_;
  const Clock::duration slice_;
  std::uint64_t yields_left_;  // until the next check
  bool is_on_trial_ = false;
  int former_cpu_ = 0;  // before the trial
  Clock::time_point trial_end_;
};

}  // namespace allhands
