#include "allhands/base/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace allhands {

void hold_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free is this one. Without /dev/null it stays closed.
    if (::open("/dev/null", O_RDWR) < 0) return;
  }
}

}  // namespace allhands
