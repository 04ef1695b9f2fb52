// Operations of a group run one at a time in the order in which they were issued,
// whether in the calling thread or in the progress thread: each takes a ticket when it
// is issued and runs when that number comes up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

#include "allhands/base/limits.hpp"

namespace allhands {

class Turns {
 public:
  using Ticket = std::uint64_t;

  Ticket take();
  // Returns when it is this ticket's turn. Throws Timeout or Interrupted, and gives the
  // ticket up then.
  void wait(Ticket ticket, const Limits& limits);
  // Ends the current turn.
  void pass();
  // Every ticket taken has had its turn.
  bool is_idle() const;

 private:
  void advance();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Ticket next_ = 0;
  Ticket current_ = 0;
  int num_waiting_ = 0;
  std::set<Ticket> given_up_;
};

// Ends the current turn when it goes out of scope.
struct Turn {
  Turns& turns;
  ~Turn() { turns.pass(); }
};

}  // namespace allhands
