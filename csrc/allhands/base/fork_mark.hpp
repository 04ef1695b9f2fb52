// Tells a forked child from the process that a value was made in.
//
// A signal's handler may fork while a thread waits, and the child unwind the wait: what
// stands for the parent in shared memory is then not the child's to take back.
#pragma once

#include <pthread.h>

#include <atomic>

namespace allhands {

// The process that has made it. Asking costs a load, and no system call.
class ForkMark {
 public:
  ForkMark() : forks_(num_forks_.load(std::memory_order_relaxed)) {}
  // Whether this process is a child, or its child, of the one that has made it.
  bool is_forked() const {
    return num_forks_.load(std::memory_order_relaxed) != forks_;
  }

 private:
  // How many forks lie between this process and the one that loaded this library.
  static inline std::atomic<int> num_forks_ = 0;
  static inline const int registered_ =
      pthread_atfork(nullptr, nullptr, [] { ++num_forks_; });

  int forks_;
};

}  // namespace allhands
