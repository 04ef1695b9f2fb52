// The operations of a group that were issued with async_op=True, in their order.
//
// A thread that waits for one, with no limit of its own, carries out those before it
// and then that one, which saves two changes of threads. The progress thread carries
// out what no thread waits for; it starts with the first operation and lets each lie
// for a nap first, longer where it is told that a wait will come. It also goes on with
// an operation whose waiter is interrupted before all ranks have come.
//
// Thread-safe. Callbacks run in the thread that carried out their operation, outside
// the lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "allhands/arena/arena.hpp"
#include "allhands/arena/operation.hpp"
#include "allhands/base/thread_mark.hpp"
#include "allhands/base/ticks.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/comm/turns.hpp"
#include "allhands/engine/work.hpp"

namespace allhands {

class OperationQueue {
 public:
  // An operation as it was posted, at `issued`.
  struct Entry {
    const Operation operation;
    const Deadline deadline;
    const Ticks issued = ticks_now();
    Turns::Ticket ticket = 0;
  };
  // Runs one whose turn it is. `waiter`: the thread that waits for it does, with these
  // limits, and is called off by Suspended; null: the progress thread does.
  using Run = std::function<void(const Entry&, const Limits* waiter)>;

  // `group`: its name, for messages. `mark`: the ThreadMark of callbacks.
  OperationQueue(std::string group, const void* mark, Turns& turns, Run run)
      : group_(std::move(group)), mark_(mark), turns_(turns), run_(std::move(run)) {}
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  struct Posted {
    Turns::Ticket ticket;
    std::shared_ptr<Work> work;
  };

  // Throws Backend after close(), and where there can be no thread.
  Posted post(Operation operation, Deadline deadline);
  // As Work::wait of a posted operation. In a callback that the progress thread runs, a
  // limit is looked at only between operations.
  void wait(Work& work, const Limits& limits);
  // `work`, which was posted here, is awaited, but by nobody who waits: the progress
  // thread carries it out without a nap; in a callback of its own, now.
  void hurry(const Work& work);
  // `work`, which was posted here, will be waited for before long: the progress thread
  // leaves it to that wait for a second, unless somebody waits for what comes later.
  void postpone(const Work& work);
  // Called before a wait for that turn: what was posted before lies no longer. In such
  // a callback this thread has to carry it out.
  void go_on_before(Turns::Ticket ticket);

  // Nothing is posted any more.
  void close();
  // After close(), once all turns end: ends the thread.
  void join();
  // Whether some have not ended.
  bool is_busy();
  // Calls see(entry) of each that has not ended, in their order.
  template <class See>
  void each(See see) {
    const std::lock_guard lock(mutex_);
    for (const QueuedPtr& queued : queue_) see(*queued);
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Queued : Entry {
    Queued(Operation to_run, Deadline until) : Entry{std::move(to_run), until} {}
    Clock::time_point postponed_until;
    Work work;
  };
  using QueuedPtr = std::shared_ptr<Queued>;

  bool take_part(const Limits& limits);
  bool carry_out(Queued& first, const Limits* waiter);
  std::optional<Suspended> run_first(Queued& first, const Limits* waiter,
                                     bool& is_awaited);
  void leave_first();
  void remove_first();
  void hurry();
  void wake();
  void progress();
  void run_in_turn(std::unique_lock<std::mutex>& lock);
  bool is_own_thread() const { return ThreadMark::is_set(&thread_); }
  void go_on_until_ended(const Work& work, const Deadline& deadline);
  void go_on(std::unique_lock<std::mutex>& lock);
  bool rest(std::unique_lock<std::mutex>& lock);
  // Whether there is something to do for who is not at it already.
  bool is_first_free() const { return !queue_.empty() && !is_first_running_; }
  bool is_first_postponed() const {
    const Clock::time_point until = queue_.front()->postponed_until;
    return until != Clock::time_point() && Clock::now() < until;
  }
  bool is_over() const { return queue_.empty() && is_closing_; }

  const std::string group_;
  const void* const mark_;
  Turns& turns_;
  const Run run_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<QueuedPtr> queue_;  // each until it has ended
  bool is_first_running_ = false;
  bool is_urgent_ = false;  // somebody waits who cannot carry out the first itself
  bool is_asleep_ = false;  // the thread, until it is woken
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace allhands
