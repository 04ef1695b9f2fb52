// A piece of memory that several processes map. It comes from memfd_create(2), so it
// has no name in any file system, does not count against the size of /dev/shm, and
// disappears with its last user, however that one ends. It is sealed against shrinking,
// so that no peer can cause SIGBUS.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "allhands/base/fd.hpp"

namespace allhands {

class SharedMemory {
 public:
  // A range of whole huge pages that begins at one can be mapped with them.
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  // Makes new zeroed memory; a page takes memory once it is touched. /proc shows
  // `name`.
  static std::shared_ptr<SharedMemory> create(std::size_t size,
                                              const std::string& name = "allhands");
  // Maps memory that another process created and whose descriptor it passed on.
  static std::shared_ptr<SharedMemory> map(Fd fd);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // Allocates the pages of this range now, so that touching them later cannot fail:
  // huge pages if the system has them, which doubles the speed of large arrays. Throws
  // Backend if there is no memory for them. Call before close_fd().
  void reserve(std::size_t at, std::size_t bytes) const;
  // The descriptor to pass on; may be closed by close_fd() when nobody else will map
  // it.
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }

 private:
  SharedMemory(Fd fd, std::size_t size);

  Fd fd_;
  std::size_t size_;
  std::size_t reserved_bytes_;
  void* reserved_;  // address range around the mapping
  std::byte* data_;
};

}  // namespace allhands
