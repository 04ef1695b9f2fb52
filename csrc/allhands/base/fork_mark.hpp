// Tells a forked child from the process in which a value was made.
//
// The handler of a signal may fork while a thread waits, and the child may unwind the
// wait.
// The child must not undo then what stands for its parent in shared memory.
#pragma once

#include <pthread.h>

#include <atomic>

namespace allhands {

// Remembers the process that made it. A check costs a load, and no system call.
class ForkMark {
 public:
  ForkMark() : forks_(num_forks_.load(std::memory_order_relaxed)) {}
  // Whether this process is a child of the one that made it, or a child's child.
  bool is_forked() const {
    return num_forks_.load(std::memory_order_relaxed) != forks_;
  }

 private:
  // The number of forks between this process and the one that loaded this library.
  static inline std::atomic<int> num_forks_ = 0;
  static inline const int registered_ =
      pthread_atfork(nullptr, nullptr, [] { ++num_forks_; });

  int forks_;
};

}  // namespace allhands
