// What the kernel tells of a CPU's caches, and of the CPU.
#pragma once

#include <cstdint>
#include <string>

namespace allhands {

// Of the last cache of `cpu`, which others may share; 0 where the kernel does not tell.
std::uint64_t last_cache_bytes(int cpu);

// As in /proc/cpuinfo, one line; the machine's type where that names none.
std::string cpu_model();

}  // namespace allhands
