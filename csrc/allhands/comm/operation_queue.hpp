// The operations of a group that were issued with async_op=True, in their order.
//
// A thread that waits for one, with no limit of its own, carries out those before it
// and then that one, which saves two changes of threads. The progress thread carries
// out the operations that no thread waits for. It is started by the first operation. It
// leaves each operation alone for a short nap first, or for longer if it is told that a
// wait will come. It also goes on with an operation whose waiter is interrupted before
// all ranks have come.
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
  // Runs the operation whose turn it is. If `waiter` is given, the thread that waits
  // for the operation runs it, with these limits, and Suspended calls it off; if null,
  // the progress thread runs it.
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

  // Throws Backend after close(), and if no thread can be started.
  Posted post(Operation operation, Deadline deadline);
  // Like Work::wait on a posted operation. In a callback that the progress thread runs,
  // limits are checked only between operations.
  void wait(Work& work, const Limits& limits);
  // Notes that `work`, which was posted here, is needed but that no thread waits for
  // it. The progress thread carries it out without a nap; if called in one of that
  // thread's callbacks, it does so now.
  void hurry(const Work& work);
  // Notes that a thread will soon wait for `work`, which was posted here. The progress
  // thread leaves it to that wait for a second, unless somebody waits for a later
  // operation.
  void postpone(const Work& work);
  // Called before a wait for that turn: operations posted earlier are no longer left
  // alone. In a callback of the progress thread, this thread has to carry them out.
  void go_on_before(Turns::Ticket ticket);

  // Ends posting: no operation can be posted any more.
  void close();
  // Ends the thread. Call after close(), once all turns end.
  void join();
  // Whether some operations have not ended.
  bool is_busy();
  // Calls see(entry) for each operation that has not ended, in their order.
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
  void sleep(std::unique_lock<std::mutex>& lock,
             std::optional<Clock::time_point> until);
  // Whether the first operation exists and no thread is running it yet.
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
