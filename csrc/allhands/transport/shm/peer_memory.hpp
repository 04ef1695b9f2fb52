// The memory of other processes of this host: read and written by system calls, with
// one copy.
//
// Whether the kernel allows that depends on the host: not in some containers, nor of
// another user's process. Where Linux's Yama module allows it of relatives only,
// let_siblings_read names the parent's descendants as such.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allhands {

// Allows the processes that this one's parent started, and theirs, to read its memory.
void let_siblings_read();

// How a read of a peer's memory ended.
enum class PeerRead { Done, Gone, Refused };

// Copies `bytes` at `address` of process `pid` to `to`. Gone: the process has ended.
// Refused: it may not be read, or has nothing there; `to` may have been written to.
PeerRead read_memory_of(int pid, std::uint64_t address, void* to, std::size_t bytes);

// Copies `bytes` from `from` to `address` of process `pid`. False: it cannot; something
// may have been written.
bool write_memory_of(int pid, std::uint64_t address, void* from, std::size_t bytes);

}  // namespace allhands
