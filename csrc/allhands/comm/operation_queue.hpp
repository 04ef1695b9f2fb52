// The operations of a group that were issued with async_op=True, in their order.
//
// A thread that waits for one carries out those before it and then that one, which
// saves two changes of threads. The progress thread carries out what no thread waits
// for; it starts with the first operation and lets each lie for a nap first. While it
// waits for the peers to come, an operation can still change threads: when the wait's
// limits end, the thread goes on with it.
//
// Thread-safe. Callbacks run in the thread that carried out their operation, outside
// the lock.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "allhands/arena/operation.hpp"
#include "allhands/base/wait.hpp"
#include "allhands/comm/turns.hpp"
#include "allhands/engine/work.hpp"

namespace allhands {

class OperationQueue {
 public:
  // Runs an operation, whose turn it is, until `deadline`. `waiter`: the limits of the
  // thread that waits for it; null in the progress thread. Throws Suspended where those
  // end first, and is called again.
  using Run = std::function<void(Turns::Ticket, const Operation&, Deadline deadline,
                                 const Limits* waiter)>;

  OperationQueue(Turns& turns, Run run) : turns_(turns), run_(std::move(run)) {}
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  struct Posted {
    Turns::Ticket ticket;
    std::shared_ptr<Work> work;
  };

  // Throws Backend after close(), and where there can be no thread.
  Posted post(Operation operation, Deadline deadline);
  // As Work::wait of a posted operation.
  void wait(Work& work, const Limits& limits);

  // Nothing is posted any more.
  void close();
  // After close(), once all turns end: ends the thread.
  void join();
  // Whether some have not ended.
  bool is_busy();
  bool is_own_thread() const { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  struct Queued {
    Queued(Operation to_run, Deadline until)
        : operation(std::move(to_run)), deadline(until) {}
    const Operation operation;
    const Deadline deadline;
    Turns::Ticket ticket = 0;
    Work work;
  };
  using QueuedPtr = std::shared_ptr<Queued>;

  void start_thread();
  bool take_part(const Limits& limits);
  void carry_out(Queued& queued, const Limits* waiter);
  void hurry();
  void progress();
  bool rest(std::unique_lock<std::mutex>& lock);

  Turns& turns_;
  const Run run_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<QueuedPtr> queue_;
  int num_running_ = 0;     // taken out of the queue
  bool is_urgent_ = false;  // somebody waits who cannot carry out the first itself
  bool is_asleep_ = false;  // the thread, until something is posted
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace allhands
