"""FileStore: a store in a file that all ranks reach, on one host or over NFS.

Each user of the file keeps the whole table in memory and brings it up to date from the
log before every operation. The log also tells who came and who left properly.

The file's life: `world_size` says how many users will come. The last of them to leave
removes the file. A user who comes when nobody is present, but finds that somebody left
without a word (was killed), knows the content for that of a failed job and clears it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta

from allhands.errors import DistStoreError
from allhands.store.log import Log
from allhands.store.table import ChangeKind, Table, TableStore

__all__ = ["FileStore"]

# Kinds of records besides the changes of a table.
_CAME = 6
_LEFT = 7

# Leaving may happen in a destructor, where nobody wants to wait for long.
_LIMIT_TO_LEAVE = timedelta(seconds=5)


class FileStore(TableStore):
    """A store in the file `file_name`, which is created if missing.

    Threads may share it. It waits by looking into the file at intervals of up to 10 ms.
    A process that forks may go on using it on both sides.

    Args:
        file_name: the path, the same for all ranks; the file system needs `fcntl`
            locks (NFS has them).
        world_size: how many FileStores will be made on the file in all (clones are
            not counted); the last one to go removes it. Not positive: the file stays.

    Raises:
        DistStoreError: the file cannot be opened or is something else's.

    Example:
        ```python
        store = dist.FileStore("/shared/job_17", world_size=2)
        store.add("arrived", 1)
        ```
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self._user = _User(os.fspath(file_name), world_size, self.timeout)
        self._stay = _Stay()
        weakref.finalize(self._stay, self._user.leave)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._user.path

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"

    def clone(self) -> FileStore:
        """Another object on the same data, with a timeout of its own."""
        other = FileStore.__new__(FileStore)
        other._user, other._stay = self._user, self._stay
        other._timeout = self._timeout
        return other

    def _transaction(self) -> AbstractContextManager[Table]:
        return self._user.transaction(self.timeout)


class _Departures(threading.local):
    """Holds back users that the garbage collector finds while this thread has a lock.

    To leave takes the file's lock, and the thread may have that one itself, through
    another FileStore on the file: it would wait for itself.
    """

    def __init__(self) -> None:
        self.are_held_back = False
        self.waiting: list[_User] = []

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Let nobody leave within the `with` block, and all who wanted to after it."""
        self.are_held_back = True
        try:
            yield
        finally:
            self.are_held_back = False
            while self.waiting:
                self.waiting.pop().leave()


_departures = _Departures()


class _Stay:
    """Held by a FileStore and its clones: when it is gone, their user leaves."""


class _User:
    """One user of the file: what it knows of it, and how it comes and goes.

    Threads may share it: a mutex admits them one by one, then the log's lock.
    """

    def __init__(self, path: str, world_size: int, limit: timedelta) -> None:
        self.path = path
        self._world_size = world_size
        self._mutex = threading.Lock()
        self._process = os.getpid()
        self._forget()
        while True:
            self._log = Log(path)
            try:
                if self._enter(limit):
                    return
            except BaseException:
                self._log.close()
                raise
            self._log.close()

    @contextmanager
    def transaction(self, limit: timedelta) -> Iterator[Table]:
        """The table as it is now in the file; its changes go there."""
        if os.getpid() != self._process:
            self._settle_after_fork(limit)
        with _departures.held_back(), self._mutex, self._log.locked(limit):
            try:
                self._catch_up()
                yield self._table
                if self._table.journal:
                    self._log.append(self._table.journal)
                    self._table.journal.clear()
            except BaseException:
                # The table may hold what the file does not: read it all anew.
                self._forget()
                self._log.rewind()
                raise

    def leave(self) -> None:
        """Leave for good, and remove the file if that was the last user expected."""
        if os.getpid() != self._process:
            return  # a forked child that never used it
        if _departures.are_held_back:
            _departures.waiting.append(self)
            return
        # Who cannot leave properly (no space, no lock) looks to the next like one who
        # was killed, and that is all right.
        with _departures.held_back(), suppress(DistStoreError, OSError):
            self._say_goodbye()
        self._log.close()

    def _say_goodbye(self) -> None:
        with self._log.locked(_LIMIT_TO_LEAVE):
            self._catch_up()
            if self._is_counted:
                self._log.append([(_LEFT, "", b"")])
            is_last = self._log.enter() and self._came >= self._world_size > 0
            if is_last and self._log.is_at_path():
                self._log.remove()

    def _enter(self, limit: timedelta) -> bool:
        """Come in; False where the last user of before has just removed the file."""
        with _departures.held_back(), self._log.locked(limit):
            if not self._log.is_at_path():
                return False
            self._catch_up()
            is_alone = self._log.enter()
            if is_alone and self._came != self._left and self._world_size > 0:
                self._forget()
                self._log.clear()
            self._log.append([(_CAME, "", b"")])
            self._came += 1
            self._is_counted = True
            return True

    def _catch_up(self) -> None:
        for kind, key, value in self._log.read():
            if kind == _CAME:
                self._came += 1
            elif kind == _LEFT:
                self._left += 1
            else:
                self._table.apply(ChangeKind(kind), key, value)

    def _forget(self) -> None:
        self._table = Table()
        self._came = self._left = 0

    def _settle_after_fork(self, limit: timedelta) -> None:
        """Become a user in a forked child: present, but not one of those counted."""
        self._process = os.getpid()
        self._mutex = threading.Lock()  # a thread of the parent may hold the old one
        self._is_counted = False
        self._forget()
        self._log.reopen()
        with _departures.held_back(), self._log.locked(limit):
            self._log.enter()
