#include "allhands/net/wakeup.hpp"

#include <sys/eventfd.h>

#include <cerrno>

#include "allhands/base/error.hpp"

namespace allhands {

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_.is_open()) throw system_error(ErrorKind::Network, "eventfd", errno);
}

void Wakeup::notify() {
  // This fails only if the counter is full, and then the descriptor is readable
  // already.
  (void)::eventfd_write(fd_.get(), 1);
}

void Wakeup::clear() {
  eventfd_t count;
  (void)::eventfd_read(fd_.get(), &count);
}

}  // namespace allhands
