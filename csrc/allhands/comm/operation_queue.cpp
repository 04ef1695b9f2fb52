#include "allhands/comm/operation_queue.hpp"

#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "allhands/arena/arena.hpp"
#include "allhands/base/error.hpp"

namespace allhands {

OperationQueue::Posted OperationQueue::post(Operation operation, Deadline deadline) {
  const auto queued = std::make_shared<Queued>(std::move(operation), deadline);
  const std::lock_guard lock(mutex_);
  if (is_closing_) throw Error(ErrorKind::Backend, "the group was destroyed");
  if (!thread_.joinable()) start_thread();
  queue_.push_back(queued);
  const Turns::Ticket ticket = queued->ticket = turns_.take();
  if (is_asleep_) changed_.notify_one();
  return {ticket, {queued, &queued->work}};
}

void OperationQueue::start_thread() {
  try {
    thread_ = std::thread([this] { progress(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::Backend,
                std::string("no thread for operations with async_op=True: ") +
                    error.what() +
                    "; the memory or the number of threads (`ulimit -u`, pids.max) is "
                    "used up. Synchronous operations need none");
  }
}

void OperationQueue::wait(Work& work, const Limits& limits) {
  while (!work.is_completed() && take_part(limits)) {
  }
  work.wait(limits);
}

// Carries out the first of the queue; false: this thread cannot, or its limits ended.
bool OperationQueue::take_part(const Limits& limits) {
  QueuedPtr first;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return false;
    if (!turns_.is_turn(queue_.front()->ticket)) {
      hurry();
      return false;
    }
    first = std::move(queue_.front());
    queue_.pop_front();
    ++num_running_;
  }
  try {
    carry_out(*first, &limits);
    return true;
  } catch (const Suspended& suspended) {
    const std::lock_guard lock(mutex_);
    queue_.push_front(std::move(first));
    --num_running_;
    hurry();
    if (suspended.end == WaitEnd::Interrupted) throw interrupted();
    return false;
  }
}

void OperationQueue::carry_out(Queued& queued, const Limits* waiter) {
  bool is_awaited = false;
  {
    std::optional<Turn> turn(std::in_place, turns_);
    std::exception_ptr error;
    try {
      run_(queued.ticket, queued.operation, queued.deadline, waiter);
    } catch (const Suspended&) {
      turn->keep();
      throw;
    } catch (...) {
      error = std::current_exception();
    }
    // Before the turn ends: the next to run finds this one completed.
    is_awaited = queued.work.settle(error);
    const std::lock_guard lock(mutex_);
    --num_running_;
  }
  if (is_awaited) queued.work.announce();  // callbacks may use the group
}

// The thread does not let the first lie any longer.
void OperationQueue::hurry() {
  is_urgent_ = true;
  changed_.notify_one();
}

void OperationQueue::progress() {
  std::unique_lock lock(mutex_);
  while (rest(lock)) {
    const QueuedPtr first = std::move(queue_.front());
    queue_.pop_front();
    ++num_running_;
    is_urgent_ = is_urgent_ && !queue_.empty();
    lock.unlock();
    turns_.wait(first->ticket, {Deadline::never()});
    carry_out(*first, nullptr);
    lock.lock();
  }
}

// Until an operation has lain for a whole nap; false: the thread is to end. The thread
// that posted it mostly waits for it soon. The thread naps on a few times when nothing
// is left: to wake it for every operation would cost more than the operation.
bool OperationQueue::rest(std::unique_lock<std::mutex>& lock) {
  constexpr std::chrono::microseconds kNap{200};
  constexpr int kMaxIdleNaps = 50;
  for (int idle_naps = 0;; ++idle_naps) {
    if (queue_.empty() && is_closing_) return false;
    if (queue_.empty() && idle_naps >= kMaxIdleNaps) {
      is_asleep_ = true;
      changed_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
      is_asleep_ = false;
      idle_naps = 0;
    }
    const bool had_first = !queue_.empty();
    const Turns::Ticket first = had_first ? queue_.front()->ticket : 0;
    changed_.wait_for(lock, kNap, [this] { return is_closing_ || is_urgent_; });
    if (queue_.empty()) {
      is_urgent_ = false;
      continue;
    }
    if (is_closing_ || is_urgent_ || (had_first && queue_.front()->ticket == first))
      return true;
    idle_naps = 0;
  }
}

void OperationQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_one();
}

void OperationQueue::join() {
  if (thread_.joinable()) thread_.join();
}

bool OperationQueue::is_busy() {
  const std::lock_guard lock(mutex_);
  return !queue_.empty() || num_running_ != 0;
}

}  // namespace allhands
