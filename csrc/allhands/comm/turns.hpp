// Operations of a group run one at a time in the order in which they were issued,
// whether in the calling thread or in the progress thread: each takes a ticket when it
// is issued and runs when that number comes up. The ticket is the operation's sequence
// number: every rank issues the same operations in the same order.
//
// A ticket whose turn has already come needs no lock. A thread that has to wait does so
// under the mutex. It is counted in `attention_` from before it first reads `current_`
// until it is served. So a thread that ends a turn either sees that another one waits,
// or has ended the turn in time for the other to see that.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

#include "allhands/base/wait.hpp"

namespace allhands {

// Hands out tickets, and lets one operation run at a time, in their order.
class Turns {
 public:
  using Ticket = std::uint64_t;  // from 1

  Ticket take() { return next_.fetch_add(1, std::memory_order_relaxed); }
  // What take() would return now.
  Ticket next() const { return next_.load(std::memory_order_relaxed); }
  // Returns when it is this ticket's turn. Throws Timeout, Interrupted, or Backend if
  // the group is closed meanwhile; in these cases it gives the ticket up.
  void wait(Ticket ticket, const Limits& limits) {
    if (current_.load(std::memory_order_acquire) != ticket)
      wait_in_line(ticket, limits);
  }
  bool is_turn(Ticket ticket) const {
    return current_.load(std::memory_order_acquire) == ticket;
  }
  // Ends the current turn.
  void pass() {
    current_.fetch_add(1);
    if (attention_.load() != 0) call_next();
  }
  // Returns when every ticket taken has had its turn, or earlier with what ended the
  // wait. Throws Interrupted.
  WaitEnd wait_until_idle(const Limits& limits);

 private:
  void wait_in_line(Ticket ticket, const Limits& limits);
  void call_next();
  void give_up(Ticket ticket);
  void skip_given_up();

  std::atomic<Ticket> next_ = 1;
  std::atomic<Ticket> current_ = 1;
  std::atomic<int> attention_ = 0;  // tickets that are waited for or given up
  std::mutex mutex_;                // guards what follows
  std::condition_variable changed_;
  std::set<Ticket> given_up_;
};

// Ends the current turn when it goes out of scope.
class Turn {
 public:
  explicit Turn(Turns& turns) : turns_(&turns) {}
  ~Turn() {
    if (turns_ != nullptr) turns_->pass();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  // Does not end the turn: the operation goes on with the same ticket.
  void keep() { turns_ = nullptr; }

 private:
  Turns* turns_;
};

}  // namespace allhands
