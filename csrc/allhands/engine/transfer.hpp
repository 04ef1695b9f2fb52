// One send or one receive, from its posting to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "allhands/base/buffer.hpp"
#include "allhands/base/deadline.hpp"
#include "allhands/engine/work.hpp"

namespace allhands {

inline constexpr int kAnySource = -1;

// Owned by the ProgressEngine's lock; `work` is for everybody.
struct Transfer {
  bool is_send;
  Buffer buffer;
  int peer;  // destination or source; may be kAnySource
  std::int64_t tag;
  Deadline deadline;
  std::uint32_t id = 0;
  int source = kAnySource;  // of the message that a receive got
  std::size_t moved = 0;    // elements
  Work work{};
};

using TransferPtr = std::shared_ptr<Transfer>;

}  // namespace allhands
