// Counts one thread of this process as long as the object lives.
#pragma once

#include <atomic>

#include "allhands/base/fork_mark.hpp"

namespace allhands {

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  // A forked child that unwinds must leave a count in shared memory to its parent.
  ~Counted() {
    if (!process_.is_forked()) [[likely]]
      --count_;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
  const ForkMark process_;
};

}  // namespace allhands
