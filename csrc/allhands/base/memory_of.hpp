// The anonymous memory (memfd_create) of another process of this user.
#pragma once

#include <string>

#include "allhands/base/fd.hpp"

namespace allhands {

// Opens the memory called `name` that process `pid` has open, with open(2)'s `flags`.
// Returns a closed Fd if the process has none, or hides it. Throws Backend if no
// descriptor is free, since the memory may be there.
Fd open_memory_of(int pid, const std::string& name, int flags);

}  // namespace allhands
