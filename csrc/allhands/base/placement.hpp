// Which CPUs the ranks of a group run on.
//
// Where ranks outnumber CPUs, they wait by yielding. So no CPU is ever idle, and the
// kernel leaves the ranks where it once put them: with 3 on one of two CPUs and 1 on
// the other an operation takes up to twice as long as with 2 and 2, while the one that
// is alone yields to nobody. So a rank that yields looks now and then where the others
// are, and the last one of a CPU that has two more than another moves there.
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

// One rank's view. Thread rule: one thread at a time; it is the one that moves.
class Placement {
 public:
  // `seats`: of all ranks, in shared memory. Looks once in `yields_per_look`; 0: never.
  Placement(std::vector<Seat*> seats, int rank, std::uint64_t yields_per_look)
      : seats_(std::move(seats)),
        rank_(static_cast<std::size_t>(rank)),
        yields_per_look_(yields_per_look),
        yields_left_(yields_per_look) {}

  // Lets another thread of this CPU run.
  void yield() {
    if (yields_per_look_ != 0 && --yields_left_ == 0) {
      yields_left_ = yields_per_look_;
      look();
    }
    sched_yield();
  }
  // This rank is about to sleep: it takes no CPU from the others.
  void leave_seat() { seats_[rank_]->store(0, std::memory_order_relaxed); }

 private:
  void look();

  const std::vector<Seat*> seats_;
  const std::size_t rank_;
  const std::uint64_t yields_per_look_;
  std::uint64_t yields_left_;
  std::chrono::steady_clock::time_point may_move_at_;
};

}  // namespace allhands
