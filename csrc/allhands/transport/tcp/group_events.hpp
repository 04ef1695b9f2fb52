// What may matter to one rank of a group of what comes from other hosts: counted, with
// the peers that have written, for those who wait. Thread-safe.
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
  // Called for each event, from any thread; must not throw. May be none.
  using Hook = std::function<void()>;

  explicit GroupEvents(Hook hook)
      : has_hook_(hook != nullptr), hook_(std::move(hook)) {}

  std::uint32_t count() const { return count_.load(std::memory_order_seq_cst); }
  void tell();
  // The same, for a record of `peer`. `is_listed` is the peer's: it is in the list.
  void tell_record(int peer, std::atomic<bool>& is_listed);
  // Returns when there were other than `seen`, after `limit`, or for no reason.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit);
  // Hands over the peers that have written since; `unlist` is called for each.
  template <class Unlist>
  void take_writers(std::vector<int>& writers, Unlist unlist) {
    writers.clear();
    if (!has_writers_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    writers.swap(writers_);
    has_writers_.store(false, std::memory_order_relaxed);
    for (const int peer : writers) unlist(peer);
  }
  // The hook is not called any more.
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
