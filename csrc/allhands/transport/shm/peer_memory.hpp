// The memory of other processes of this host: read and written by system calls, with
// one copy.
//
// Whether the kernel allows that depends on the host: some containers do not allow it,
// and another user's process cannot be accessed. If Linux's Yama module allows it only
// between relatives, let_siblings_read declares the parent's descendants as such.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allhands {

// Allows the processes that this one's parent started, and their descendants, to read
// its memory.
void let_siblings_read();

// How a read of a peer's memory ended.
enum class PeerRead { Done, Gone, Refused };

// Copies `bytes` at `address` of process `pid` to `to`. Gone: the process has ended.
// Refused: it may not be read, or has nothing there; `to` may have been written to.
PeerRead read_memory_of(int pid, std::uint64_t address, void* to, std::size_t bytes);

// Copies `bytes` from `from` to `address` of process `pid`. Returns false if it cannot;
// some bytes may have been written then.
bool write_memory_of(int pid, std::uint64_t address, void* from, std::size_t bytes);

}  // namespace allhands
