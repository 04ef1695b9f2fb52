#include "allhands/base/error.hpp"

#include <cstring>

namespace allhands {

Error system_error(ErrorKind kind, const std::string& what, int code) {
  return Error(kind, what + ": " + std::strerror(code));
}

}  // namespace allhands
