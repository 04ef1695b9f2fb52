#include "allhands/base/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
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

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t size) {
  Fd fd(memfd_create("allhands", MFD_CLOEXEC | MFD_ALLOW_SEALING));
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

SharedMemory::SharedMemory(Fd fd, std::size_t size) : fd_(std::move(fd)), size_(size) {
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (address == MAP_FAILED) fail("mmap", size);
  data_ = static_cast<std::byte*>(address);
}

SharedMemory::~SharedMemory() { munmap(data_, size_); }

}  // namespace allhands
