// Counts one thread of this process while it lives.
#pragma once

#include <atomic>

#include "allhands/base/fork_mark.hpp"

namespace allhands {

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  // A count in shared memory stays the parent's in a forked child that unwinds.
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
