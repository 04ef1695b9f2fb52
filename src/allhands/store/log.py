"""Log: a file of records that processes on any number of hosts append to and read.

The file is a magic line and then records: a header (CRC-32 of all the rest, kind, sizes
of key and value), the key in UTF-8, the value. Records are only ever appended, under
the file's lock, so a reader goes on where it stopped. A writer that dies in the middle
of a record leaves an incomplete one at the end; the next writer cuts it off.

Locks are `fcntl` record locks, which NFS passes on, in the form that belongs to the
open file and not to the process (F_OFD_SETLK), so they hold between threads, too. Two
bytes far behind the data are locked: MUTEX by whoever reads or writes, for as long as
that takes; PRESENCE, shared, by everyone who has the file open. The kernel frees both
when a process dies, however that happens.

An object is for one thread at a time, and for the process that made it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from allhands.errors import DistStoreError
from allhands.store.base import poll

__all__ = ["Log", "Record"]

Record = tuple[int, str, bytes]
"""Kind (1 to 255), key, value."""

_MAGIC = b"allhands store 1\n"
_HEADER = struct.Struct("<IBIQ")  # CRC-32 of the rest, kind, bytes of key and value
_CRC_SIZE = 4
_MUTEX = 1 << 62
_PRESENCE = _MUTEX + 1
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid
# s; others hold the lock for far less, and who looks seldom finds it taken.
_PAUSE = 0.001
# The kernel moves at most this much in one call (see read(2)).
_LARGEST_READ = 0x7FFFF000


class Log:
    """The log at `path`, which is created if missing, readable by this user only.

    Raises:
        DistStoreError: the file cannot be opened, or is not such a log.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._end = 0  # up to here, records have been read or written
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed("cannot be opened", error) from error

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
        os.unlink(self.path)

    def clear(self) -> None:
        """Remove all records. Call it under the lock, while nobody else is present."""
        os.ftruncate(self._file, 0)
        self.rewind()

    def rewind(self) -> None:
        """Let `read` begin again with the first record."""
        self._end = 0

    def reopen(self) -> None:
        """Have the file, and with it the locks, for this process alone after a fork."""
        inherited = self._file
        self._file = os.open(f"/proc/self/fd/{inherited}", os.O_RDWR)
        os.close(inherited)
        self.rewind()

    @contextmanager
    def locked(self, limit: timedelta) -> Iterator[None]:
        """Keep everybody else out.

        Raises:
            DistStoreError: somebody else kept us out for `limit`.
        """
        try:
            if not any(self._lock(_MUTEX, fcntl.F_WRLCK) for _ in poll(limit, _PAUSE)):
                raise DistStoreError(
                    f"FileStore {self.path!r}: another process has held the file's "
                    f"lock for {limit.total_seconds():g} s; is it stopped?"
                )
            yield
        finally:
            # Ctrl-C may have come with or without the lock; both are all right.
            self._lock(_MUTEX, fcntl.F_UNLCK)

    def enter(self) -> bool:
        """Be present until the file is closed; whether nobody else is present now.

        Call it under the lock.
        """
        is_alone = self._lock(_PRESENCE, fcntl.F_WRLCK)
        self._lock(_PRESENCE, fcntl.F_RDLCK)
        return is_alone

    def read(self) -> Iterator[Record]:
        """The records that are new since the last call. Call it under the lock."""
        data = memoryview(self._new_bytes())
        if not self._end:
            if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
                raise self._failed("is not a store's file; choose another path")
            if len(data) < len(_MAGIC):
                return
            self._end = len(_MAGIC)
            data = data[self._end :]
        while len(data) >= _HEADER.size:
            crc, kind, key_size, value_size = _HEADER.unpack_from(data)
            key_end = _HEADER.size + key_size
            end = key_end + value_size
            if end > len(data):
                break
            if zlib.crc32(data[_CRC_SIZE:end]) != crc:
                raise self._failed(f"is damaged at byte {self._end}; remove it")
            self._end += end
            key = str(data[_HEADER.size : key_end], "utf-8")
            yield kind, key, bytes(data[key_end:end])
            data = data[end:]

    def append(self, records: Sequence[Record]) -> None:
        """Append `records`, all or none. Call it under the lock, after `read`.

        Raises:
            DistStoreError: the file could not take them, it may be full.
        """
        data = b"".join(_encoded(record) for record in records)
        start = self._end
        if not start:
            data = _MAGIC + data
        try:
            if os.fstat(self._file).st_size > start:
                os.ftruncate(self._file, start)  # a record that was never finished
            _write_at(self._file, start, data)
        except OSError as error:
            os.ftruncate(self._file, start)
            raise self._failed(f"cannot be extended by {len(data)} B", error) from error
        self._end = start + len(data)

    def _new_bytes(self) -> bytes:
        missing = os.fstat(self._file).st_size - self._end
        pieces, start = [], self._end
        while missing > 0:
            piece = os.pread(self._file, min(missing, _LARGEST_READ), start)
            if not piece:
                break
            pieces.append(piece)
            start, missing = start + len(piece), missing - len(piece)
        return b"".join(pieces)

    def _lock(self, byte: int, kind: int) -> bool:
        """Change our lock on `byte`; False where somebody else's is in the way."""
        request = _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, request)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise self._failed("cannot be locked", error) from error
        return True

    def _failed(self, problem: str, cause: OSError | None = None) -> DistStoreError:
        reason = f": {cause.strerror}" if cause else ""
        return DistStoreError(f"FileStore {self.path!r} {problem}{reason}")


def _encoded(record: Record) -> bytes:
    kind, key, value = record
    name = key.encode()
    rest = _HEADER.pack(0, kind, len(name), len(value))[_CRC_SIZE:] + name + value
    return zlib.crc32(rest).to_bytes(_CRC_SIZE, "little") + rest


def _write_at(file: int, start: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(file, left, start)
        start, left = start + written, left[written:]
