// A file descriptor that one thread makes readable to wake another one out of its
// poller.
#pragma once

#include "allhands/base/fd.hpp"

namespace allhands {

class Wakeup {
 public:
  Wakeup();

  int fd() const { return fd_.get(); }
  void notify();  // from any thread
  void clear();   // makes it unreadable again

 private:
  Fd fd_;
};

}  // namespace allhands
