#include "allhands/engine/progress_thread.hpp"

#include <chrono>

#include "allhands/base/start_thread.hpp"

namespace allhands {

void ProgressThread::drive(const TransferPtr& transfer) {
  if (transfer->work.is_completed()) return;
  const std::lock_guard lock(mutex_);
  if (stop_) return;
  if (!thread_.joinable()) thread_ = start_thread([this] { run(); });
  driven_.push_back(transfer);
  is_fresh_ = true;
  if (is_asleep_) changed_.notify_one();
}

std::vector<TransferPtr> ProgressThread::expired() {
  std::vector<TransferPtr> transfers;
  const std::lock_guard lock(mutex_);
  for (const TransferPtr& transfer : driven_)
    if (transfer->deadline.is_expired()) transfers.push_back(transfer);
  return transfers;
}

void ProgressThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

void ProgressThread::join() {
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::run() {
  while (rest()) turn_();
}

// Pauses before the next turn. Returns false if the thread must end.
bool ProgressThread::rest() {
  constexpr std::chrono::microseconds kNap{200};
  constexpr int kMaxIdleNaps = 50;
  std::unique_lock lock(mutex_);
  const auto is_stopped = [this] { return stop_; };
  for (int idle_naps = 0;; ++idle_naps) {
    std::erase_if(driven_, [](const TransferPtr& t) { return t->work.is_completed(); });
    if (stop_ || (!driven_.empty() && !is_fresh_ && !has_others_())) return !stop_;
    is_fresh_ = false;
    if (driven_.empty() && idle_naps >= kMaxIdleNaps) {
      is_asleep_ = true;
      changed_.wait(lock, [this] { return stop_ || !driven_.empty(); });
      is_asleep_ = false;
      idle_naps = 0;
    }
    changed_.wait_for(lock, kNap, is_stopped);
    if (!driven_.empty()) return !stop_;
  }
}

}  // namespace allhands
