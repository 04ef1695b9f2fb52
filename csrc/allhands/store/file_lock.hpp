// The locks of a FileStore's file, in the form that belongs to the open file and not to
// the process (F_OFD_SETLK), so that they hold between threads, too. Two bytes far
// behind the data are locked. Nothing here waits for another's lock.
#pragma once

#include <sys/types.h>

namespace allhands::store {

// Which byte is locked: that of who changes the file, or that of all who have it open.
enum class LockedByte { Mutex, Presence };
// How a byte is locked.
enum class LockKind { None, Shared, Exclusive };

// 0, or errno: EAGAIN or EACCES where somebody else's lock is in the way.
int set_file_lock(int file, LockedByte byte, LockKind kind);

// Where the file ends; -1, with errno, where it cannot be told.
off_t find_file_end(int file);

}  // namespace allhands::store
