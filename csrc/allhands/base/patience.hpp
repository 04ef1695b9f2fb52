// How a call that waits for long says for whom, to people rather than to the program.
// The core never prints: whoever makes a group passes a function that does, or none.
#pragma once

#include <string>

#include "allhands/base/deadline.hpp"

namespace allhands {

struct Patience {
  // Must not throw; called from any thread.
  void (*say)(const std::string& text) = nullptr;
  Deadline::Duration after{};  // of one wait
};

}  // namespace allhands
