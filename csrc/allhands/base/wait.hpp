// Waiting, in the words of every wait of the core.
//
// A call gets its limits where it enters the core and passes them down. Where something
// is not there yet, a Wait sleeps until it is, a slice at a time, on whatever will wake
// it, and looks around after each slice: does the caller want out, is the group being
// closed, has the time passed? There too the owner of the wait looks for what else may
// end it, such as a dead peer. A Wait reads no clock before its first slice.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "allhands/base/deadline.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/late_notice.hpp"

namespace allhands {

// How a wait learns that its caller wants out (Ctrl-C). The core never calls Python:
// whoever starts a call passes a function that looks. True: stop waiting, an exception
// is already set in the caller's language.
using Interrupt = bool (*)();

// When a call gives up waiting.
struct Limits {
  Deadline deadline;
  Interrupt interrupt = nullptr;            // may be none
  const std::atomic<bool>* stop = nullptr;  // set: the group is being closed
};

// Which of its limits ended a wait.
enum class WaitEnd { None, Interrupted, Stopped, Expired };

// What an interrupted wait throws, once its owner has cleaned up.
inline Error interrupted() { return Error(ErrorKind::Interrupted, "interrupted"); }

// One wait for one thing, for one thread. `limits` and `notice` must outlive it.
class Wait {
 public:
  // How late a signal or a dead peer is noticed at most.
  static constexpr std::chrono::milliseconds kSlice{100};

  explicit Wait(const Limits& limits, LateNotice* notice = nullptr)
      : limits_(limits), notice_(notice) {}

  // How long the next sleep may last.
  Deadline::Duration slice() const {
    begun_.elapsed();
    return std::min<Deadline::Duration>(kSlice, limits_.deadline.remaining());
  }
  // For a wait that is kept busy: whether it is time to look around all the same. The
  // time runs from the first question.
  bool is_slice_over() {
    const Deadline::Duration waited = begun_.elapsed();
    if (waited < next_look_) return limits_.deadline.is_expired();
    next_look_ = waited + kSlice;
    return true;
  }
  // Looks around. The interrupt may take other locks: to be called under none.
  WaitEnd look() const {
    if (limits_.interrupt != nullptr && limits_.interrupt())
      return WaitEnd::Interrupted;
    if (limits_.stop != nullptr && limits_.stop->load(std::memory_order_relaxed))
      return WaitEnd::Stopped;
    return limits_.deadline.is_expired() ? WaitEnd::Expired : WaitEnd::None;
  }
  // Says text(how long this has waited) to people, where that is due.
  template <class Text>
  void tell_if_late(Text text) const {
    if (notice_ == nullptr) return;
    const Deadline::Duration waited = begun_.elapsed();
    if (notice_->is_due(waited)) notice_->say(text(waited));
  }
  // Sleeps on `changed`, whose mutex `lock` holds, until is_met(). What ended it before
  // that; an interrupt counts even where it is met meanwhile.
  template <class Condition>
  WaitEnd sleep_on(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                   Condition is_met) const {
    while (!is_met()) {
      changed.wait_for(lock, slice());
      if (is_met()) break;
      lock.unlock();
      const WaitEnd end = look();
      lock.lock();
      if (end == WaitEnd::Interrupted || (end != WaitEnd::None && !is_met()))
        return end;
    }
    return WaitEnd::None;
  }

 private:
  const Limits& limits_;
  LateNotice* const notice_;
  const Deadline begun_ = Deadline::never();
  Deadline::Duration next_look_ = kSlice;
};

}  // namespace allhands
