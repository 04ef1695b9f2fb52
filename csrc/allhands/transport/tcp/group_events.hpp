// Counts the events from other hosts that may matter to one rank of a group, and lists
// the peers that have written. Threads can sleep until there is an event. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace allhands {

class GroupEvents {
 public:
  // Called for each event, from any thread; must not throw. May be empty.
  using Hook = std::function<void()>;

  explicit GroupEvents(Hook hook)
      : has_hook_(hook != nullptr), hook_(std::move(hook)) {}

  std::uint32_t count() const { return count_.load(std::memory_order_seq_cst); }
  void tell();
  // Tells of a record from `peer`. `is_listed` belongs to the peer: whether it is in
  // the list.
  void tell_record(int peer, std::atomic<bool>& is_listed);
  // Returns when the count differs from `seen`, after `limit`, or for no reason.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit);
  // Hands over the peers that have written since the last call, and calls `unlist` for
  // each.
  template <class Unlist>
  void take_writers(std::vector<int>& writers, Unlist unlist) {
    writers.clear();
    if (!has_writers_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    writers.swap(writers_);
    has_writers_.store(false, std::memory_order_relaxed);
    for (const int peer : writers) unlist(peer);
  }
  // From now on, the hook is not called.
  void unhook();

  void note_abort() { num_aborted_.fetch_add(1, std::memory_order_release); }
  bool has_aborted() const { return num_aborted_.load(std::memory_order_acquire) != 0; }

 private:
  std::atomic<std::uint32_t> count_ = 0;  // futex word
  std::atomic<std::uint32_t> sleepers_ = 0;
  std::atomic<std::uint32_t> num_aborted_ = 0;
  std::atomic<bool> has_writers_ = false;
  std::mutex mutex_;
  std::vector<int> writers_;
  std::atomic<bool> has_hook_;
  std::mutex hook_mutex_;
  Hook hook_;
};

}  // namespace allhands
