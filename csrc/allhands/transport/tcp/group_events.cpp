#include "allhands/transport/tcp/group_events.hpp"

#include "allhands/base/futex.hpp"

namespace allhands {

void GroupEvents::tell() {
  // Sequentially consistent with the sleeper, which counts itself and then re-reads the
  // count:
  // either the sleeper sees the new count or this sees that somebody sleeps.
  count_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(count_);
  if (!has_hook_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(hook_mutex_);
  if (hook_) hook_();
}

void GroupEvents::tell_record(int peer, std::atomic<bool>& is_listed) {
  if (!is_listed.exchange(true, std::memory_order_acq_rel)) {
    const std::lock_guard lock(mutex_);
    writers_.push_back(peer);
    has_writers_.store(true, std::memory_order_release);
  }
  tell();
}

void GroupEvents::sleep(std::uint32_t seen, std::chrono::nanoseconds limit) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (count_.load(std::memory_order_seq_cst) == seen) futex_wait(count_, seen, limit);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void GroupEvents::unhook() {
  const std::lock_guard lock(hook_mutex_);
  has_hook_.store(false, std::memory_order_relaxed);
  hook_ = nullptr;
}

}  // namespace allhands
