#pragma once

#include <cstddef>

namespace allhands {

// Throws Error(Backend) if `bytes` are more than this host has left, swap included, or
// exceed the limit of this process's control group. A size that passes may still turn
// out not to be available; a size that is refused is never available.
void check_available_memory(std::size_t bytes);

}  // namespace allhands
