#include "allhands/transport/shm/peer_memory.hpp"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace allhands {

void let_siblings_read() {
  // This fails if the kernel has no Yama; then there is nothing to allow.
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(getppid()), 0, 0, 0);
}

PeerRead read_memory_of(int pid, std::uint64_t address, void* to, std::size_t bytes) {
  while (bytes > 0) {
    const iovec mine = {to, bytes};
    const iovec theirs = {reinterpret_cast<void*>(address), bytes};
    const ssize_t count = process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
    if (count <= 0)
      return count < 0 && errno == ESRCH ? PeerRead::Gone : PeerRead::Refused;
    to = static_cast<std::byte*>(to) + count;
    address += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
  return PeerRead::Done;
}

bool write_memory_of(int pid, std::uint64_t address, void* from, std::size_t bytes) {
  while (bytes > 0) {
    const iovec mine = {from, bytes};
    const iovec theirs = {reinterpret_cast<void*>(address), bytes};
    const ssize_t count = process_vm_writev(pid, &mine, 1, &theirs, 1, 0);
    if (count <= 0) return false;
    from = static_cast<std::byte*>(from) + count;
    address += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace allhands
