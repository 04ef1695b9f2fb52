// The thread that moves a rank's messages while no other thread waits for them. It
// starts with the first transfer that is left to it.
//
// A thread that has just posted a transfer mostly waits for it soon, and then moves
// messages itself. So the engine's thread leaves this to it, and naps. It naps a few
// more times when nothing is left to drive, because waking it up for every transfer
// would cost more than the transfer. Thread-safe.
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
  // `has_others` tells whether another thread moves messages just now. `turn` moves
  // some, or sleeps for a while; it must not throw.
  ProgressThread(std::function<bool()> has_others, std::function<void()> turn)
      : has_others_(std::move(has_others)), turn_(std::move(turn)) {}

  // Moves messages until `transfer` has ended. Throws Backend if no thread can be
  // started.
  void drive(const TransferPtr& transfer);
  // Its transfers whose time has passed.
  std::vector<TransferPtr> expired();
  // Drops its transfers; the thread ends after its turn.
  void stop();
  // Call after stop(), and not from a Work's callback.
  void join();

 private:
  void run();
  bool rest();

  const std::function<bool()> has_others_;
  const std::function<void()> turn_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<TransferPtr> driven_;
  bool is_fresh_ = false;  // some transfers came since the thread last looked
  bool is_asleep_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace allhands
