#include "allhands/base/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>

#include "allhands/base/error.hpp"

namespace allhands {
namespace {

[[noreturn]] void fail(const char* call, std::size_t size) {
  throw system_error(
      ErrorKind::Backend,
      std::string(call) + " of " + std::to_string(size) + " bytes of shared memory",
      errno);
}

#ifndef MADV_COLLAPSE  // since Linux 6.1
constexpr int MADV_COLLAPSE = 25;
#endif

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t size,
                                                   const std::string& name) {
  Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) fail("memfd_create", size);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) fail("ftruncate", size);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("sealing", size);
  return std::shared_ptr<SharedMemory>(new SharedMemory(std::move(fd), size));
}

std::shared_ptr<SharedMemory> SharedMemory::map(Fd fd) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0) fail("fstat", 0);
  const auto size = static_cast<std::size_t>(status.st_size);
  return std::shared_ptr<SharedMemory>(new SharedMemory(std::move(fd), size));
}

// Maps inside a larger reservation, which contains a boundary of huge pages.
SharedMemory::SharedMemory(Fd fd, std::size_t size)
    : fd_(std::move(fd)), size_(size), reserved_bytes_(size + kHugePage) {
  reserved_ = mmap(nullptr, reserved_bytes_, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved_ == MAP_FAILED) fail("mmap", size);
  const auto begin = reinterpret_cast<std::uintptr_t>(reserved_);
  data_ = reinterpret_cast<std::byte*>((begin + kHugePage - 1) / kHugePage * kHugePage);
  if (mmap(data_, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_.get(), 0) ==
      MAP_FAILED) {
    const int code = errno;
    munmap(reserved_, reserved_bytes_);
    errno = code;
    fail("mmap", size);
  }
}

void SharedMemory::reserve(std::size_t at, std::size_t bytes) const {
  // A signal ends the call and undoes its work. So it goes in pieces that take a few
  // milliseconds; between a profiler's signals there is time for one.
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kPiece, bytes - done);
    if (fallocate(fd_.get(), 0, static_cast<off_t>(at + done),
                  static_cast<off_t>(piece)) == 0)
      done += piece;
    else if (errno != EINTR)
      fail("fallocate", bytes);
  }
  // Only works on pages that are present. If it fails, as on older kernels or without
  // free huge pages, small pages are used.
  if (at % kHugePage == 0 && bytes >= kHugePage)
    (void)madvise(data_ + at, bytes / kHugePage * kHugePage, MADV_COLLAPSE);
}

SharedMemory::~SharedMemory() { munmap(reserved_, reserved_bytes_); }

}  // namespace allhands
