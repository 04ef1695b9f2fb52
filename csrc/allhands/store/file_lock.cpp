#include "allhands/store/file_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace allhands::store {
namespace {

constexpr off_t kMutex = off_t{1} << 62;
constexpr off_t kPresence = kMutex + 1;

short type_of(LockKind kind) {
  switch (kind) {
    case LockKind::Shared:
      return F_RDLCK;
    case LockKind::Exclusive:
      return F_WRLCK;
    case LockKind::None:
      break;
  }
  return F_UNLCK;
}

}  // namespace

int set_file_lock(int file, LockedByte byte, LockKind kind) {
  struct flock request = {};
  request.l_type = type_of(kind);
  request.l_whence = SEEK_SET;
  request.l_start = byte == LockedByte::Mutex ? kMutex : kPresence;
  request.l_len = 1;
  return ::fcntl(file, F_OFD_SETLK, &request) == 0 ? 0 : errno;
}

off_t find_file_end(int file) { return ::lseek(file, 0, SEEK_END); }

}  // namespace allhands::store
