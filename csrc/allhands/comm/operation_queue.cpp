#include "allhands/comm/operation_queue.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "allhands/base/error.hpp"
#include "allhands/base/start_thread.hpp"

namespace allhands {
namespace {

constexpr std::chrono::microseconds kNap{200};
constexpr std::chrono::seconds kPostponed{1};

}  // namespace

OperationQueue::Posted OperationQueue::post(Operation operation, Deadline deadline) {
  const auto queued = std::make_shared<Queued>(std::move(operation), deadline);
  const std::lock_guard lock(mutex_);
  if (is_closing_)
    throw Error(ErrorKind::Backend, "group '" + group_ + "' was destroyed");
  if (!thread_.joinable()) thread_ = start_thread([this] { progress(); });
  queue_.push_back(queued);
  const Turns::Ticket ticket = queued->ticket = turns_.take();
  if (is_asleep_) wake();
  return {ticket, {queued, &queued->work}};
}

void OperationQueue::wait(Work& work, const Limits& limits) {
  if (is_own_thread()) go_on_until_ended(work, limits.deadline);
  while (!work.is_completed() && take_part(limits)) {
  }
  work.wait(limits);
}

// For a callback in the progress thread: no other thread does the progress thread's
// work.
void OperationQueue::go_on_until_ended(const Work& work, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  while (!work.is_completed() && !deadline.is_expired()) go_on(lock);
}

void OperationQueue::go_on_before(Turns::Ticket ticket) {
  std::unique_lock lock(mutex_);
  const auto has_earlier = [&] {
    return !queue_.empty() && queue_.front()->ticket < ticket;
  };
  if (is_own_thread())
    while (has_earlier()) go_on(lock);
  else if (has_earlier())
    hurry();
}

void OperationQueue::go_on(std::unique_lock<std::mutex>& lock) {
  if (is_first_free())
    run_in_turn(lock);
  else
    changed_.wait_for(lock, kNap);  // another thread is at it
}

// Carries out the first operation of the queue; returns false if another thread does.
bool OperationQueue::take_part(const Limits& limits) {
  QueuedPtr first;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return false;
    if (is_first_running_ || !limits.deadline.is_never() ||
        !turns_.is_turn(queue_.front()->ticket)) {
      hurry();
      return false;
    }
    first = queue_.front();
    is_first_running_ = true;
  }
  return carry_out(*first, &limits);
}

// Returns false if the progress thread is to carry the operation out.
bool OperationQueue::carry_out(Queued& first, const Limits* waiter) {
  bool is_awaited = false;
  if (const auto suspended = run_first(first, waiter, is_awaited)) {
    leave_first();
    if (suspended->interruption) std::rethrow_exception(suspended->interruption);
    return false;
  }
  if (is_awaited) {
    const ThreadMark in_callback(mark_);
    first.work.announce();  // callbacks may use the group
  }
  return true;
}

std::optional<Suspended> OperationQueue::run_first(Queued& first, const Limits* waiter,
                                                   bool& is_awaited) {
  Turn turn(turns_);
  std::exception_ptr error;
  try {
    run_(first, waiter);
  } catch (const Suspended& suspended) {
    turn.keep();
    return suspended;
  } catch (...) {
    error = std::current_exception();
  }
  // Settle before the turn ends, so that the next operation finds this one completed.
  is_awaited = first.work.settle(error);
  remove_first();
  return std::nullopt;
}

void OperationQueue::leave_first() {
  const std::lock_guard lock(mutex_);
  is_first_running_ = false;
  hurry();
}

void OperationQueue::remove_first() {
  const std::lock_guard lock(mutex_);
  queue_.pop_front();
  is_first_running_ = false;
  is_urgent_ = is_urgent_ && !queue_.empty();
  if (is_closing_ || is_urgent_ || (is_asleep_ && !queue_.empty())) wake();
}

void OperationQueue::hurry(const Work& work) {
  if (is_own_thread()) return go_on_until_ended(work, Deadline::never());
  if (work.is_completed()) return;
  const std::lock_guard lock(mutex_);
  if (!queue_.empty()) hurry();
}

void OperationQueue::postpone(const Work& work) {
  const Clock::time_point until = Clock::now() + kPostponed;
  const std::lock_guard lock(mutex_);
  // From its end: the operation has just been posted.
  const auto found =
      std::find_if(queue_.rbegin(), queue_.rend(),
                   [&](const auto& each) { return &each->work == &work; });
  if (found != queue_.rend()) (*found)->postponed_until = until;
}

// Makes the progress thread run the first operation without a further nap.
void OperationQueue::hurry() {
  is_urgent_ = true;
  wake();
}

void OperationQueue::wake() {
  is_asleep_ = false;
  changed_.notify_one();
}

void OperationQueue::progress() {
  const ThreadMark own(&thread_);
  std::unique_lock lock(mutex_);
  while (rest(lock)) run_in_turn(lock);
}

void OperationQueue::run_in_turn(std::unique_lock<std::mutex>& lock) {
  const QueuedPtr first = queue_.front();
  is_first_running_ = true;
  lock.unlock();
  turns_.wait(first->ticket, {Deadline::never()});
  carry_out(*first, nullptr);
  lock.lock();
}

// Rests until the first operation has been left alone for a whole nap; returns false if
// the thread is to end. The nap is worth it since the thread that posted an operation
// usually waits for it soon. The thread naps on a few times when it has nothing to do:
// to wake it for every operation would cost more than the operation. More naps would
// take the CPU from a program that computes between its operations.
bool OperationQueue::rest(std::unique_lock<std::mutex>& lock) {
  constexpr int kMaxIdleNaps = 10;
  for (int idle_naps = 0; !is_over(); ++idle_naps) {
    if (!is_first_free() && idle_naps >= kMaxIdleNaps) {
      sleep(lock, std::nullopt);
      idle_naps = 0;
    } else if (is_first_free() && is_first_postponed() && !is_urgent_ && !is_closing_) {
      sleep(lock, queue_.front()->postponed_until);
    }
    const bool had_first = is_first_free();
    const Turns::Ticket first = had_first ? queue_.front()->ticket : 0;
    changed_.wait_for(lock, kNap, [this] {
      return is_over() || (is_first_free() && (is_closing_ || is_urgent_));
    });
    if (!is_first_free()) continue;
    const bool has_lain = had_first && queue_.front()->ticket == first;
    if (is_closing_ || is_urgent_ || (has_lain && !is_first_postponed())) return true;
    idle_naps = 0;
  }
  return false;
}

// Sleeps until woken, or until that time.
void OperationQueue::sleep(std::unique_lock<std::mutex>& lock,
                           std::optional<Clock::time_point> until) {
  is_asleep_ = true;
  const auto is_woken = [this] { return !is_asleep_; };
  if (until)
    changed_.wait_until(lock, *until, is_woken);
  else
    changed_.wait(lock, is_woken);
  is_asleep_ = false;
}

void OperationQueue::close() {
  const std::lock_guard lock(mutex_);
  is_closing_ = true;
  wake();
}

void OperationQueue::join() {
  if (thread_.joinable()) thread_.join();
}

bool OperationQueue::is_busy() {
  const std::lock_guard lock(mutex_);
  return !queue_.empty();
}

}  // namespace allhands
