#include "allhands/base/seconds.hpp"

#include <chrono>
#include <cstdio>

namespace allhands {

std::string seconds(Deadline::Duration duration) {
  char text[32];
  const double value = std::chrono::duration<double>(duration).count();
  std::snprintf(text, sizeof(text), value < 10 ? "%.2f s" : "%.0f s", value);
  return text;
}

}  // namespace allhands
