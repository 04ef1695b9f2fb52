#pragma once

#include <cstddef>

namespace allhands {

// Throws Error(Backend) if this host has no `bytes` of memory to give: beyond what it
// has left, swap included, or beyond the limit of this process's control group. What it
// lets pass may still turn out not to be there; what it refuses is not.
void check_available_memory(std::size_t bytes);

}  // namespace allhands
