// Waiting for many file descriptors in one thread: level-triggered epoll.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include "allhands/base/fd.hpp"

namespace allhands {

// What one file descriptor is ready for.
struct Readiness {
  int fd;
  bool is_readable;  // also if the peer closed it, or it failed; reading tells
  bool is_writable;
};

// Waits for many file descriptors. Belongs to one thread. A descriptor must be removed,
// or closed by its last owner, before its number is used again.
class Poller {
 public:
  Poller();

  void add(int fd);  // for reading
  // From now on waits for these; for neither: only for a failure.
  void watch(int fd, bool is_readable, bool is_writable);
  void remove(int fd);
  // Waits until a descriptor is ready or `limit`, rounded up to milliseconds, has
  // passed.
  std::span<const Readiness> wait(std::chrono::nanoseconds limit);

 private:
  void control(int operation, int fd, std::uint32_t events);

  static constexpr int kMaxEvents = 256;
  Fd epoll_;
  std::array<epoll_event, kMaxEvents> events_;
  std::array<Readiness, kMaxEvents> ready_;
};

}  // namespace allhands
