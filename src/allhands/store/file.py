"""FileStore: a store in a file that all ranks reach, on one host or over NFS.

Each user of the file keeps the whole table in memory and updates it from the log before
every operation. The log also records which users came and which left properly.

`world_size` says how many users will come. The last of them to leave removes the file.
If a user comes while no other is present, and finds that an earlier user did not leave
properly (it was killed), the content is that of a failed job, and the user clears it.
"""

from __future__ import annotations

import atexit
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from allhands._C import StoreTable, as_finalizer, encode_store_record
from allhands.errors import DistStoreError
from allhands.store.limits import poll
from allhands.store.log import LOCK_PAUSE_S, Log
from allhands.store.table import TableStore

__all__ = ["FileStore"]

T = TypeVar("T")

# Kinds of records besides those of the table's changes (1 to 5). These numbers are part
# of the file format.
_CAME, _LEFT = 6, 7

# A user may leave in a destructor, which must not wait for long.
_LIMIT_TO_LEAVE = timedelta(seconds=5)

# So many users look into the file as often as one does. Beyond that, each look that
# finds the lock taken keeps a CPU from the user that has it: 256 users that looked as
# often met after 97 s, on 2 CPUs.
_FEW = 16
_LARGEST_SCALE = 128.0  # that of 181 users; a long wait looks every 1.3 s then

# The users of files, by the stay that ends with the last of a user's FileStores.
_users: dict[weakref.ref[_Stay], _User] = {}


class FileStore(TableStore):
    """A store in the file `file_name`, which is created if missing.

    Threads may share it. A wait looks into the file at intervals of up to 10 ms; with
    more than 16 users these are longer, up to 160 ms with 64 users. After a fork, the
    parent and the child may both continue to use it.

    The store accepts an existing file if the file is empty or belongs to a store, if
    its owner is this user or root, and if nobody else may write to it. Only this user
    can access a file that the store creates.

    Args:
        file_name: the path, the same for all ranks; the file system needs `fcntl`
            locks (NFS has them).
        world_size: how many FileStores will be made on the file in all (clones do not
            count); the last one removes the file. If it is not positive, the file
            stays.

    Raises:
        DistStoreError: the file cannot be opened, is not a store's file, is damaged, or
            may have been written by another user.

    Example:
        ```python
        store = dist.FileStore("/shared/job_17", world_size=2)
        store.add("arrived", 1)
        ```
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        size = operator.index(world_size)
        user = _User(os.fsdecode(file_name), size, self.timeout)
        self._settle(user, _Stay())
        _users[weakref.ref(self._stay, _on_gone)] = user

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._user.path

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"

    def num_keys(self) -> int:
        """Return the number of keys, and 1 for the store's count of its users."""
        return super().num_keys() + 1

    def clone(self) -> FileStore:
        """Return another object on the same data, with its own timeout."""
        other = FileStore.__new__(FileStore)
        other._settle(self._user, self._stay)
        other._timeout = self._timeout
        return other

    def _settle(self, user: _User, stay: _Stay) -> None:
        self._user, self._stay, self._table = user, stay, user.table

    def _do(self, act: Callable[..., T], *args: Any) -> T:
        done = self._user.try_to_do(act, args)
        if done is None:  # otherwise the limit is not needed
            done = self._user.do(self.timeout, act, args)
        return done[0]

    def _wait_until(
        self, limit: timedelta, act: Callable[..., T | None], *args: Any
    ) -> T | None:
        for _ in poll(limit, scale=self._user.scale):
            found = self._do(act, *args)
            if found is not None:
                return found
        return None


class _Departures(threading.local):
    """Holds back users that the garbage collector drops while this thread has a lock.

    A user that leaves takes the lock of its file. The thread may hold this lock itself,
    through another FileStore on the file. Then it would wait for itself.
    """

    def __init__(self) -> None:
        self.are_held_back = False
        self.waiting: list[_User] = []

    def let_go(self) -> None:
        """Let the users leave that were held back."""
        self.are_held_back = False
        while self.waiting:
            self.waiting.pop().leave()

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Hold back users within the `with` block, and let them leave after it."""
        self.are_held_back = True
        try:
            yield
        finally:
            self.let_go()


_departures = _Departures()


class _Stay:
    """A FileStore and its clones share one; when it is gone, their user leaves."""


class _User:
    """One user of the file: its copy of the table, and how it comes and leaves.

    Threads may share it. A mutex admits them one by one; then the thread takes the lock
    of the log. A thread holds both while it reads and writes the file, but never while
    it waits.
    """

    def __init__(self, path: str, world_size: int, limit: timedelta) -> None:
        self.path = path
        self.table = StoreTable()
        self.table.note_changes()
        self._world_size = world_size
        self._mutex = threading.RLock()
        self._is_busy = False
        self._is_present = False
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

    @property
    def scale(self) -> float:
        """How many times longer this user pauses than one of a few users.

        What counts are the users that are expected, or those that came.
        """
        num_users = max(self._world_size, self._came - self._left)
        return min(max(1.0, (num_users / _FEW) ** 2), _LARGEST_SCALE)

    def do(
        self, limit: timedelta, act: Callable[..., T], args: tuple[Any, ...]
    ) -> tuple[T]:
        """Call `try_to_do` until it succeeds.

        Raises:
            DistStoreError: another process held the file's lock for `limit`.
        """
        for _ in poll(limit, LOCK_PAUSE_S, self.scale):
            done = self.try_to_do(act, args)
            if done is not None:
                return done
        raise self._log.is_locked(limit)

    def try_to_do(
        self, act: Callable[..., T], args: tuple[Any, ...]
    ) -> tuple[T] | None:
        """Call `act` on the current table of the file; write its changes to the file.

        Returns:
            The result of `act` in a tuple, or None if another process has the file's
            lock.
        """
        departures = _departures
        are_held_back = departures.are_held_back
        departures.are_held_back = True
        try:
            if self._process != os.getpid():
                self._settle_after_fork()
            with self._mutex:
                if self._is_busy:  # the mutex lets this thread in twice
                    raise self._is_entered_twice()
                return self._act(act, args)
        finally:
            if not are_held_back:
                departures.are_held_back = False
                if departures.waiting:
                    departures.let_go()

    def _act(self, act: Callable[..., T], args: tuple[Any, ...]) -> tuple[T] | None:
        log = self._log
        try:
            self._is_busy = True
            has_news = log.try_to_lock()
            if has_news is None:
                return None
            if not self._is_present:
                log.enter()
                self._is_present = True
            if has_news:
                self._catch_up()
            result = act(*args)
            records = self.table.take_records()
            if records:
                log.append(records)
            return (result,)
        except BaseException:
            # The table may hold changes that the file lacks: read the file anew.
            self._forget()
            log.rewind()
            raise
        finally:
            self._is_busy = False
            log.unlock()

    def _is_entered_twice(self) -> DistStoreError:
        return DistStoreError(
            f"FileStore {self.path!r}: a signal handler or a finalizer used it "
            "amid an operation of the same thread; give it a FileStore of its own"
        )

    def leave(self) -> None:
        """Leave for good; remove the file if this was the last expected user."""
        if os.getpid() != self._process:
            return  # a forked child that never used it
        if _departures.are_held_back:
            _departures.waiting.append(self)
            return
        try:
            # A user that cannot leave properly (no space, no lock) looks to the next
            # one like a user that was killed. This is acceptable.
            with _departures.held_back(), suppress(DistStoreError):
                self._say_goodbye()
        finally:
            self._log.close()

    def _say_goodbye(self) -> None:
        with self._log.locked(_LIMIT_TO_LEAVE, self.scale):
            self._catch_up()
            if self._is_counted:
                self._log.append(encode_store_record(_LEFT, "", b""))
            is_last = self._log.enter() and self._came >= self._world_size > 0
            if is_last and self._log.is_at_path():
                self._log.remove()

    def _enter(self, limit: timedelta) -> bool:
        """Become a user; return False if the last one has just removed the file."""
        with _departures.held_back(), self._log.locked(limit, self.scale):
            if not self._log.is_at_path():
                return False
            self._catch_up()
            is_alone = self._log.enter()
            self._is_present = True
            if is_alone and self._came != self._left and self._world_size > 0:
                self._forget()
                self._log.clear()
            self._log.append(encode_store_record(_CAME, "", b""))
            self._came += 1
            self._is_counted = True
            return True

    def _catch_up(self) -> None:
        for kind, key, value in self._log.read():
            if kind == _CAME:
                self._came += 1
            elif kind == _LEFT:
                self._left += 1
            elif not self._repeat(kind, key, value):
                raise self._log.damaged()

    def _repeat(self, kind: int, key: str, value: bytes) -> bool:
        try:
            return self.table.repeat(kind, key, value)
        except ValueError:  # the value would be too long
            return False

    def _forget(self) -> None:
        self.table.clear()
        self._came = self._left = 0

    def _settle_after_fork(self) -> None:
        """Become a user in a forked child: present, but not counted."""
        self._mutex = threading.RLock()  # a thread of the parent may hold the old one
        self._is_busy = self._is_present = self._is_counted = False
        self._forget()
        self._log.reopen()
        self._process = os.getpid()


def _depart(stay: weakref.ref[_Stay]) -> None:
    user = _users.pop(stay, None)
    if user is not None:
        user.leave()


_on_gone = as_finalizer(_depart)


@atexit.register
def _depart_all() -> None:
    while _users:
        _users.popitem()[1].leave()
