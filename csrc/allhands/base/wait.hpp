// Waiting, as every wait of the core does it.
//
// A call gets its limits where it enters the core, and passes them down. A Wait sleeps
// until its condition holds, a slice at a time, on whatever will wake it. After each
// slice it checks whether the caller wants out, the group is being closed, or the time
// has passed. The first throws, at one place, and the owner of the wait cleans up where
// it must. The owner then also checks what else may end the wait, such as a dead peer.
// A Wait reads no clock before its first slice.
//
// While it looks, a signal's handler may fork. The wait and what it waits for are the
// parent's, in whose memory shared with others a child would only do harm. So the child
// leaves the wait with an error, and owners undo nothing there.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "allhands/base/deadline.hpp"
#include "allhands/base/error.hpp"
#include "allhands/base/fork_mark.hpp"
#include "allhands/base/late_notice.hpp"

namespace allhands {

// How a wait learns that its caller wants out (Ctrl-C). The core never calls Python;
// the caller passes a function that checks. It returns true if the wait must stop and
// an exception is already set in the caller's language.
using Interrupt = bool (*)();

// When a call gives up waiting.
struct Limits {
  Deadline deadline;
  Interrupt interrupt = nullptr;            // may be null
  const std::atomic<bool>* stop = nullptr;  // set when the group is being closed
};

// Which of its limits ended a wait. An interrupt is none of them: it throws.
enum class WaitEnd { None, Stopped, Expired };

// One wait for one condition, for one thread. `limits` and `notice` must outlive it.
class Wait {
 public:
  // The longest time until a signal or a dead peer is noticed.
  static constexpr std::chrono::milliseconds kSlice{100};

  explicit Wait(const Limits& limits, LateNotice* notice = nullptr)
      : limits_(limits), notice_(notice) {}

  // How long the next sleep may last.
  Deadline::Duration slice() const {
    begun_.elapsed();
    return std::min<Deadline::Duration>(kSlice, limits_.deadline.remaining());
  }
  // For a busy wait: whether it is time to look around. The time runs from the first
  // call.
  bool is_slice_over() {
    const Deadline::Duration waited = begun_.elapsed();
    if (waited < next_look_) return limits_.deadline.is_expired();
    next_look_ = waited + kSlice;
    return true;
  }
  // Looks around; throws Interrupted, and Backend in a child forked meanwhile. The
  // interrupt may take other locks, so call this without holding any.
  WaitEnd look() const {
    if (limits_.interrupt != nullptr && limits_.interrupt())
      throw Error(ErrorKind::Interrupted, "interrupted");
    if (process_.is_forked())
      throw Error(ErrorKind::Backend,
                  "this process was forked in the middle of a call, with which only "
                  "its parent can go on");
    if (limits_.stop != nullptr && limits_.stop->load(std::memory_order_relaxed))
      return WaitEnd::Stopped;
    return limits_.deadline.is_expired() ? WaitEnd::Expired : WaitEnd::None;
  }
  // Tells people text(time waited so far), if a notice is due.
  template <class Text>
  void tell_if_late(Text text) const {
    if (notice_ == nullptr) return;
    const Deadline::Duration waited = begun_.elapsed();
    if (notice_->is_due(waited)) notice_->say(text(waited));
  }
  // Sleeps on `changed`, whose mutex `lock` holds, until is_met(). Returns what ended
  // the sleep before that. Throws Interrupted even if the condition is met meanwhile.
  // `lock` holds the mutex afterwards in any case.
  template <class Condition>
  WaitEnd sleep_on(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                   Condition is_met) const {
    while (!is_met()) {
      changed.wait_for(lock, slice());
      if (is_met()) break;
      const WaitEnd end = look_without(lock);
      if (end != WaitEnd::None && !is_met()) return end;
    }
    return WaitEnd::None;
  }

 private:
  WaitEnd look_without(std::unique_lock<std::mutex>& lock) const {
    struct Unlocked {
      explicit Unlocked(std::unique_lock<std::mutex>& given) : lock(given) {
        lock.unlock();
      }
      ~Unlocked() { lock.lock(); }
      std::unique_lock<std::mutex>& lock;
    };
    const Unlocked unlocked(lock);
    return look();
  }

  const Limits& limits_;
  LateNotice* const notice_;
  const ForkMark process_;
  const Deadline begun_ = Deadline::never();
  Deadline::Duration next_look_ = kSlice;
};

}  // namespace allhands
