// A file descriptor of which no child of fork() keeps a copy. With a copy, the peer of
// a socket would not see that this process has ended.
#pragma once

#include <utility>

#include "allhands/base/fd.hpp"

namespace allhands {

// A file descriptor that is closed in forked children.
class UnforkedFd {
 public:
  UnforkedFd() = default;
  explicit UnforkedFd(Fd fd);
  UnforkedFd(UnforkedFd&& other) noexcept = default;
  UnforkedFd& operator=(UnforkedFd&& other) noexcept;
  ~UnforkedFd() { reset(); }

  int get() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  void reset();

 private:
  Fd fd_;
};

}  // namespace allhands
