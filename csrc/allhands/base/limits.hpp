// When a call gives up waiting.
#pragma once

#include <atomic>

#include "allhands/base/deadline.hpp"
#include "allhands/base/interrupt.hpp"

namespace allhands {

struct Limits {
  Deadline deadline;
  Interrupt interrupt = nullptr;            // may be none
  const std::atomic<bool>* stop = nullptr;  // set: the group is being closed
};

}  // namespace allhands
