// Which CPUs the ranks of a group run on.
//
// Where ranks outnumber CPUs, they wait by yielding. So no CPU is ever idle, and the
// kernel leaves the ranks where it once put them: with 3 on one of two CPUs and 1 on
// the other an operation takes up to twice as long as with 2 and 2, while the one that
// is alone yields to nobody. Two ranks that woke up on one CPU of two stay there for
// some 20 ms, and take four times as long. So a rank that yields looks now and then
// where the others are, and the last one of a CPU that has two more than another moves
// there.
//
// It cannot know beforehand whether something else computes there. It is on trial: when
// a yield, or the move, takes as long as a time slice, it goes back, and none of the
// group's ranks moves for a while. That it was another rank, busy with large arrays,
// cannot be told apart; so the while is short.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace allhands {

// The CPU on which a rank last looked, plus one; 0 while it does not wait awake.
using Seat = std::atomic<std::int32_t>;

// What the ranks of a group know of their moves; in shared memory, zero at first.
struct Moves {
  using Duration = std::chrono::steady_clock::duration;

  std::atomic<Duration> next;  // none before that, on the steady clock
};

// One rank's view of which CPUs the ranks run on. Thread rule: one thread at a time; it
// is the one that moves.
class Placement {
 public:
  using Clock = std::chrono::steady_clock;

  // `seats`, of all ranks, and `moves`: in shared memory. Looks once in
  // `yields_per_look`; 0: never. A yield longer than `slice` let something compute.
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
  // This rank is about to sleep: it takes no CPU from the others.
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
  std::uint64_t yields_left_;  // until the next look
  bool is_on_trial_ = false;
  int former_cpu_ = 0;  // the trial's
  Clock::time_point trial_end_;
};

}  // namespace allhands
