"""Log: a file of records that processes on any number of hosts append to and read.

The file is a magic line and then records (csrc/allhands/store/record.hpp says what they
are made of). Records are only ever appended, under the file's lock, so a reader goes on
where it stopped. A writer that dies in the middle of a record leaves an incomplete one
at the end; the next writer cuts it off.

Locks are `fcntl` record locks, which NFS passes on, in the form that belongs to the
open file and not to the process (F_OFD_SETLK), so they hold between threads, too. Two
bytes far behind the data are locked: MUTEX by whoever reads or writes, for as long as
that takes; PRESENCE, shared, by everyone who has the file open. The kernel frees both
when a process dies, however that happens.

Whoever can write to the file can make its readers believe anything, so a file that was
there before is checked (ownership.py), and nothing that it says takes more memory or
time than the bytes that it has.

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

__all__ = ["Log", "Record"]

Record = tuple[int, str, bytes]
"""Kind (1 to 255), key, value."""

_MAGIC = b"allhands store 1\n"
# Read at a time, unless a record is longer.
_PIECE = 1 << 20
# s; others hold the lock for far less, and who looks seldom finds it taken.
_PAUSE = 0.001


class Log:
    """The log at `path`, which is created if missing, readable by this user only.

    Raises:
        DistStoreError: the file cannot be opened, is not such a log, or is one that
            another user may have written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._end = 0  # up to here, records have been read or written
        self._size = 0  # of the file, when it was last read
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed("cannot be opened", error) from error
        problem = distrust(self._file, path)
        if problem:
            self.close()
            raise self._failed(problem)

    def close(self) -> None:
        """Give up the locks and the file."""
        os.close(self._file)

    def is_at_path(self) -> bool:
        """Whether the path still leads to this file: nobody removed it meanwhile."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file from its directory. Call it under the lock."""
        try:
            os.unlink(self.path)
        except OSError as error:
            raise self._failed("cannot be removed", error) from error

    def clear(self) -> None:
        """Remove all records. Call it under the lock, while nobody else is present."""
        self._cut(0)
        self.rewind()

    def rewind(self) -> None:
        """Let `read` begin again with the first record."""
        self._end = 0

    def reopen(self) -> None:
        """Have the file, and with it the locks, for this process alone after a fork."""
        inherited = self._file
        try:
            self._file = os.open(f"/proc/self/fd/{inherited}", os.O_RDWR)
        except OSError as error:
            raise self._failed("cannot be opened again", error) from error
        os.close(inherited)
        self.rewind()

    def try_to_lock(self) -> bool | None:
        """Keep everybody else out until `unlock`; None where somebody does that.

        Returns:
            Whether `read` has anything to give.
        """
        try:
            self._size = size = lock_store_file(self._file)
        except OSError as error:
            self._check_refusal(error)
            return None
        return size != self._end

    def unlock(self) -> None:
        """Let the others in. It may be called without the lock."""
        try:
            unlock_store_file(self._file)
        except OSError as error:
            self._check_refusal(error)

    @contextmanager
    def locked(self, limit: timedelta) -> Iterator[None]:
        """Keep everybody else out.

        Raises:
            DistStoreError: somebody else kept us out for `limit`.
        """
        try:
            if all(self.try_to_lock() is None for _ in poll(limit, _PAUSE)):
                raise self.is_locked(limit)
            yield
        finally:
            # Ctrl-C may have come with or without the lock; both are all right.
            self.unlock()

    def is_locked(self, limit: timedelta) -> DistStoreError:
        """The error of a caller that `try_to_lock` has refused for `limit`."""
        return self._failed(
            f": another process has held the file's lock for "
            f"{limit.total_seconds():g} s; is it stopped?"
        )

    def enter(self) -> bool:
        """Be present until the file is closed; whether nobody else is present now.

        Call it under the lock.
        """
        is_alone = self._mark(alone=True)
        self._mark(alone=False)
        return is_alone

    def read(self) -> Iterator[Record]:
        """The records that are new since the last call. Call it under the lock.

        Raises:
            DistStoreError: the file is no log, or is damaged.
        """
        size = self._size = os.lseek(self._file, 0, os.SEEK_END)
        if size == self._end or not (self._end or self._has_magic()):
            return
        if size < self._end:
            raise self._failed("was cut short by somebody else than a store; remove it")
        data, start = b"", self._end  # what was read of the file, and from where on
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
                return  # what follows, if anything, was never finished

    def damaged(self) -> DistStoreError:
        """The error of a reader that can make nothing of a record."""
        return self._failed(f"is damaged at byte {self._end}; remove it")

    def append(self, data: bytes) -> None:
        """Append records, all or none. Call it under the lock, after `read`.

        Raises:
            DistStoreError: the file could not take them, it may be full.
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
        """Step over the magic; False where it, like all the rest, is still missing."""
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
                raise self.damaged()  # somebody cut it while we have its lock
            pieces.append(piece)
            start, count = start + len(piece), count - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            raise self._failed(f"cannot be cut to {size} B", error) from error

    def _mark(self, alone: bool) -> bool:
        """Be present, in one way or the other; False where somebody is in the way."""
        try:
            mark_store_file(self._file, alone)
        except OSError as error:
            self._check_refusal(error)
            return False
        return True

    def _check_refusal(self, error: OSError) -> None:
        """Raise, unless somebody else's lock was in the way of ours."""
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise self._failed("cannot be locked", error) from error

    def _failed(self, problem: str, cause: OSError | None = None) -> DistStoreError:
        reason = f": {errno_text(cause.errno or 0)}" if cause else ""
        joint = "" if problem.startswith(":") else " "
        return DistStoreError(f"FileStore {self.path!r}{joint}{problem}{reason}")
