"""Log: a file of records that processes on any number of hosts append to and read.

The file is a magic line followed by records (csrc/allhands/store/record.hpp describes
them). Records are only appended, under the file's lock, so a reader continues where it
stopped. If a writer dies in the middle of a record, an incomplete record stays at the
end. The next writer cuts it off.

Locks are `fcntl` record locks, which work over NFS. They have the form that belongs to
the open file and not to the process (F_OFD_SETLK), so they also work between threads.
There are locks on two bytes far behind the data. A user locks MUTEX while it reads or
writes. Every user that has the file open holds a shared lock on PRESENCE. The kernel
frees both when a process dies for any reason.

A process that can write to the file can make its readers believe anything. So an
existing file is checked (ownership.py), and no content of the file costs a reader more
memory or time than its bytes do.

An object is for one thread at a time, and for the process that made it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from allhands._C import (
    decode_store_record,
    errno_text,
    lock_store_file,
    mark_store_file,
    store_record_size,
    unlock_store_file,
)
from allhands.errors import DistStoreError
from allhands.store.limits import poll
from allhands.store.ownership import distrust

__all__ = ["LOCK_PAUSE_S", "Log", "Record"]

Record = tuple[int, str, bytes]
"""Kind (1 to 255), key, value."""

_MAGIC = b"allhands store 1\n"
# Bytes read at a time, unless a record is longer.
_PIECE = 1 << 20
LOCK_PAUSE_S = 0.001
"""Seconds between two tries to take the lock, after the first ones.

Others hold it for a far shorter time, and a user that looks rarely seldom finds it
taken.
"""


class Log:
    """The log at `path`, which is created if missing, readable by this user only.

    Raises:
        DistStoreError: the file cannot be opened, is not a log, or may have been
            written by another user.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._end = 0  # records up to here have been read or written
        self._size = 0  # of the file, at the last read
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed("cannot be opened", error) from error
        problem = distrust(self._file, path)
        if problem:
            self.close()
            raise self._failed(problem)

    def close(self) -> None:
        """Release the locks and close the file."""
        os.close(self._file)

    def is_at_path(self) -> bool:
        """Return whether the path still leads to this file: nobody has removed it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file from its directory. The caller holds the lock."""
        try:
            os.unlink(self.path)
        except OSError as error:
            raise self._failed("cannot be removed", error) from error

    def clear(self) -> None:
        """Remove all records. The caller holds the lock, and nobody else is present."""
        self._cut(0)
        self.rewind()

    def rewind(self) -> None:
        """Let `read` start again with the first record."""
        self._end = 0

    def reopen(self) -> None:
        """After a fork, open the file anew, with locks of this process alone."""
        inherited = self._file
        try:
            self._file = os.open(f"/proc/self/fd/{inherited}", os.O_RDWR)
        except OSError as error:
            raise self._failed("cannot be opened again", error) from error
        os.close(inherited)
        self.rewind()

    def try_to_lock(self) -> bool | None:
        """Take the lock, which keeps everybody else out until `unlock`.

        Returns:
            Whether `read` has new records; None if another process has the lock.
        """
        try:
            self._size = size = lock_store_file(self._file)
        except OSError as error:
            self._check_refusal(error)
            return None
        return size != self._end

    def unlock(self) -> None:
        """Release the lock. The caller need not hold it."""
        try:
            unlock_store_file(self._file)
        except OSError as error:
            self._check_refusal(error)

    @contextmanager
    def locked(self, limit: timedelta, scale: float = 1.0) -> Iterator[None]:
        """Hold the lock within the `with` block; `scale` is that of `poll`.

        Raises:
            DistStoreError: another process held the lock for `limit`.
        """
        try:
            if all(
                self.try_to_lock() is None for _ in poll(limit, LOCK_PAUSE_S, scale)
            ):
                raise self.is_locked(limit)
            yield
        finally:
            # Ctrl-C may have come with or without the lock; unlock works in both cases.
            self.unlock()

    def is_locked(self, limit: timedelta) -> DistStoreError:
        """Return the error of a caller that `try_to_lock` has refused for `limit`."""
        return self._failed(
            f": another process has held the file's lock for "
            f"{limit.total_seconds():g} s; is it stopped?"
        )

    def enter(self) -> bool:
        """Be present until the file is closed; return whether nobody else is present.

        The caller holds the lock.
        """
        is_alone = self._mark(alone=True)
        self._mark(alone=False)
        return is_alone

    def read(self) -> Iterator[Record]:
        """Yield the new records since the last call. The caller holds the lock.

        Raises:
            DistStoreError: the file is not a log, or is damaged.
        """
        size = self._size = os.lseek(self._file, 0, os.SEEK_END)
        if size == self._end or not (self._end or self._has_magic()):
            return
        if size < self._end:
            raise self._failed("was cut short by somebody else than a store; remove it")
        data, start = b"", self._end  # bytes read from the file, and their position
        while True:
            offset = self._end - start
            num_bytes = store_record_size(data, offset)
            if num_bytes is None:
                raise self.damaged()
            if len(data) - offset >= num_bytes:
                record = decode_store_record(data, offset, num_bytes)
                if record is None:
                    raise self.damaged()
                yield record
                self._end += num_bytes
            elif size - self._end >= num_bytes:
                start = self._end
                data = self._bytes_at(start, max(num_bytes, min(size - start, _PIECE)))
            else:
                return  # any bytes that follow were never finished

    def damaged(self) -> DistStoreError:
        """Return the error of a reader that cannot decode a record."""
        return self._failed(f"is damaged at byte {self._end}; remove it")

    def append(self, data: bytes) -> None:
        """Append all records or none. The caller holds the lock and has called `read`.

        Raises:
            DistStoreError: the file could not be extended; the disk may be full.
        """
        start = self._end
        if not start:
            data = _MAGIC + data
        if self._size > start:
            self._cut(start)  # a record that was never finished
        try:
            written = os.pwrite(self._file, data, start)
            while written < len(data):
                rest = memoryview(data)[written:]
                written += os.pwrite(self._file, rest, start + written)
        except OSError as error:
            with suppress(DistStoreError):  # then the next writer cuts it off
                self._cut(start)
            raise self._failed(f"cannot be extended by {len(data)} B", error) from error
        self._end = self._size = start + len(data)

    def _has_magic(self) -> bool:
        """Step over the magic; return False if it is not complete yet."""
        begin = self._bytes_at(0, min(self._size, len(_MAGIC)))
        if begin != _MAGIC[: len(begin)]:
            raise self._failed("is not a store's file; choose another path")
        if len(begin) < len(_MAGIC):
            return False
        self._end = len(_MAGIC)
        return True

    def _bytes_at(self, start: int, count: int) -> bytes:
        pieces = []
        while count > 0:
            try:
                piece = os.pread(self._file, count, start)
            except OSError as error:
                raise self._failed("cannot be read", error) from error
            if not piece:
                # somebody cut the file while this process has its lock
                raise self.damaged()
            pieces.append(piece)
            start, count = start + len(piece), count - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            raise self._failed(f"cannot be cut to {size} B", error) from error

    def _mark(self, alone: bool) -> bool:
        """Mark this process as present; False if another's lock is in the way."""
        try:
            mark_store_file(self._file, alone)
        except OSError as error:
            self._check_refusal(error)
            return False
        return True

    def _check_refusal(self, error: OSError) -> None:
        """Raise `error` unless its cause is the lock of another process."""
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise self._failed("cannot be locked", error) from error

    def _failed(self, problem: str, cause: OSError | None = None) -> DistStoreError:
        reason = f": {errno_text(cause.errno or 0)}" if cause else ""
        joint = "" if problem.startswith(":") else " "
        return DistStoreError(f"FileStore {self.path!r}{joint}{problem}{reason}")
