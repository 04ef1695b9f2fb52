#include "allhands/transport/shm/peer_memory.hpp"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "allhands/kernels/copy_bytes.hpp"

namespace allhands {
namespace {

bool is_slow(const void* to, std::uint64_t from, std::size_t bytes) {
#if defined(__x86_64__)
  static const bool is_amd = __builtin_cpu_is("amd") != 0;
#else
  constexpr bool is_amd = false;
#endif
  constexpr std::size_t kLeast = 4096;
  return is_amd && bytes >= kLeast &&
         is_close_behind(reinterpret_cast<std::uintptr_t>(to), from);
}

// Memory that lies as `address` within its pages, for a copy that is not slow.
class Block {
 public:
  static constexpr std::size_t kBytes = 32768;

  explicit Block(std::uint64_t address)
      : at_(memory_ + (address - reinterpret_cast<std::uintptr_t>(memory_)) % kPage) {}
  std::byte* get() { return at_; }

 private:
  static constexpr std::size_t kPage = 4096;

  std::byte memory_[kBytes + kPage];
  std::byte* const at_;
};

}  // namespace

void let_siblings_read() {
  // This fails if the kernel has no Yama; then there is nothing to allow.
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(getppid()), 0, 0, 0);
}

namespace {

PeerRead read_through_block(int pid, std::uint64_t address, void* to,
                            std::size_t bytes) {
  Block block(address);
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t piece = std::min(bytes - at, Block::kBytes);
    const PeerRead end = read_memory_of(pid, address + at, block.get(), piece);
    if (end != PeerRead::Done) return end;
    copy_bytes(static_cast<std::byte*>(to) + at, block.get(), piece);
    at += piece;
  }
  return PeerRead::Done;
}

bool write_through_block(int pid, std::uint64_t address, const void* from,
                         std::size_t bytes) {
  Block block(address);
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t piece = std::min(bytes - at, Block::kBytes);
    copy_bytes(block.get(), static_cast<const std::byte*>(from) + at, piece);
    if (!write_memory_of(pid, address + at, block.get(), piece)) return false;
    at += piece;
  }
  return true;
}

}  // namespace

PeerRead read_memory_of(int pid, std::uint64_t address, void* to, std::size_t bytes) {
  if (is_slow(to, address, bytes)) return read_through_block(pid, address, to, bytes);
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
  if (is_slow(reinterpret_cast<const void*>(address),
              reinterpret_cast<std::uintptr_t>(from), bytes))
    return write_through_block(pid, address, from, bytes);
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
