// What the kernel tells of a CPU's caches, and of the CPU.
#pragma once

#include <cstdint>
#include <string>

namespace allhands {

// Of the last cache of `cpu`, which others may share; 0 where the kernel does not tell.
std::uint64_t last_cache_bytes(int cpu);

// Whether large copies of the kernel's, which x86's string instructions make, leave the
// caches out: AMD's do not read the lines that they are about to overwrite.
bool kernel_copies_past_caches();

// As in /proc/cpuinfo, one line; the machine's type where that names none.
std::string cpu_model();

}  // namespace allhands
