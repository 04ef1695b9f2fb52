// A piece of memory that several processes map: memfd_create(2), so it has no name in
// any file system, does not count against the size of /dev/shm, and is gone with its
// last user however that one ends. Sealed against shrinking: no peer can cause SIGBUS.
#pragma once

#include <cstddef>
#include <memory>

#include "allhands/base/fd.hpp"

namespace allhands {

class SharedMemory {
 public:
  // New zeroed memory; pages take room only once they are touched.
  static std::shared_ptr<SharedMemory> create(std::size_t size);
  // Maps memory that another process created and whose descriptor it passed on.
  static std::shared_ptr<SharedMemory> map(Fd fd);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // To be passed on; may be closed with close_fd() when nobody else will map it.
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }

 private:
  SharedMemory(Fd fd, std::size_t size);

  Fd fd_;
  std::size_t size_;
  std::byte* data_;
};

}  // namespace allhands
