// What the kernel tells about a CPU and its caches.
#pragma once

#include <cstdint>
#include <string>

namespace allhands {

// The size of the last cache of `cpu`, which other CPUs may share; 0 if the kernel does
// not tell.
std::uint64_t last_cache_bytes(int cpu);

// Whether large copies by the kernel, which use x86's string instructions, bypass the
// caches: those of AMD do not read the lines that they are about to overwrite.
bool kernel_copies_past_caches();

// The model as in /proc/cpuinfo, on one line; the machine's type if that has no model.
std::string cpu_model();

}  // namespace allhands
