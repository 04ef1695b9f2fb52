// The thread of a ClientLoop.
#pragma once

#include <sys/types.h>

#include <memory>
#include <thread>

#include "allhands/store/client_loop.hpp"

namespace allhands::store {

// What a thread runs: a loop and its handler.
class LoopOwner : public Handler {
 public:
  virtual ClientLoop& loop() = 0;
};

// Runs the loop from its construction on. The destructor ends the loop and the thread.
//
// A child of fork() that destroys its copy leaves the parent's loop alone.
class LoopThread {
 public:
  explicit LoopThread(std::unique_ptr<LoopOwner> owner);
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  Traffic traffic() const { return owner_->loop().traffic(); }

 private:
  pid_t process_;
  std::unique_ptr<LoopOwner> owner_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace allhands::store
