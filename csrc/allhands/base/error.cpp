#include "allhands/base/error.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace allhands {

std::string errno_text(int code) {
  std::string text = std::strerror(code);
  rlimit limit = {};
  if (code == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    text += " (this process may have " + std::to_string(limit.rlim_cur) +
            "; `ulimit -n` raises that)";
  return text;
}

Error system_error(ErrorKind kind, const std::string& what, int code) {
  return Error(kind, what + ": " + errno_text(code));
}

}  // namespace allhands
