// The locks of a FileStore's file. They belong to the open file and not to the process
// (F_OFD_SETLK), so that they also work between threads. Two bytes far behind the data
// are locked. Nothing here waits for a lock.
#pragma once

#include <sys/types.h>

namespace allhands::store {

// The byte that is locked: Mutex by the one that changes the file, Presence by all that
// have it open.
enum class LockedByte { Mutex, Presence };
// How a byte is locked.
enum class LockKind { None, Shared, Exclusive };

// Returns 0 or errno: EAGAIN or EACCES if another lock is in the way.
int set_file_lock(int file, LockedByte byte, LockKind kind);

// The position of the file's end; -1, with errno, if it cannot be found.
off_t find_file_end(int file);

}  // namespace allhands::store
