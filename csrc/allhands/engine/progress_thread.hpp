// The thread that moves a rank's messages while nobody waits for them; it starts with
// the first transfer that is left to it.
//
// Whoever has just posted a transfer mostly waits for it soon, and then moves messages
// itself: so the thread lets that one do it, and naps. It naps on a few times when
// nothing is left to drive, because waking it for every transfer would cost more than
// the transfer. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "allhands/engine/transfer.hpp"

namespace allhands {

class ProgressThread {
 public:
  // `has_others`: whether another thread moves messages just now; `turn`: moves some,
  // or sleeps for a while. It must not throw.
  ProgressThread(std::function<bool()> has_others, std::function<void()> turn)
      : has_others_(std::move(has_others)), turn_(std::move(turn)) {}

  // Moves messages until `transfer` has ended. Throws Backend where no thread can be
  // started.
  void drive(const TransferPtr& transfer);
  // Those that it drives and whose time has passed.
  std::vector<TransferPtr> expired();
  // Nothing is driven any more; the thread ends after its turn.
  void stop();
  // After stop(). Not from a Work's callback.
  void join();

 private:
  void run();
  bool rest();

  const std::function<bool()> has_others_;
  const std::function<void()> turn_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<TransferPtr> driven_;
  bool is_fresh_ = false;  // some of them came since the thread last looked
  bool is_asleep_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace allhands
