#include "allhands/base/random.hpp"

#include <sys/random.h>

#include <cerrno>

#include "allhands/base/error.hpp"

namespace allhands {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t n = ::getrandom(bytes.data() + done, count - done, 0);
    if (n < 0 && errno != EINTR)
      throw system_error(ErrorKind::Backend, "getrandom", errno);
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  return bytes;
}

}  // namespace allhands
