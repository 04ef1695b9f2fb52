"""Finds which ranks the groups of several worlds get in a merged group.

The groups share a store, and in it one record. The record says which attempt to merge
this is, how many ranks the merged group will have, and how many have come. Rank 0 of
each group adds its group to the record atomically, waits for the other groups, and
tells its own group the result. If an attempt fails, it fails for every group that has
come. The next attempt starts with no groups, and the remains of a failed attempt do not
affect it.
"""

from __future__ import annotations

import operator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from allhands.backends.communicator import Communicator
from allhands.errors import DistError, DistStoreError
from allhands.groups.merge_record import CALL, KEY, MergeRecord
from allhands.rendezvous.identity import process_identity
from allhands.store import Store
from allhands.store.compare_set import look
from allhands.store.compare_set import replace as change
from allhands.store.limits import poll

__all__ = ["MergeOffset", "find_offset"]

_MESSAGE_BYTES = 1024
# Rank 0 sends the result to its group within this time; all ranks of the group have
# come.
_GRACE = timedelta(seconds=60)


class MergeOffset(NamedTuple):
    """Where the ranks of a group begin in a merged group."""

    attempt: int
    """Unique among all attempts through the same store."""
    first: int
    """The new rank of the group's rank 0; its other ranks follow."""


def find_offset(
    communicator: Communicator,
    store: Store,
    rank: int,
    num_ranks: int,
    size: int,
    timeout: timedelta,
    name: str,
) -> MergeOffset:
    """Return where the ranks of group `name` begin; all its ranks call this.

    The call returns when groups with `size` ranks in total have come.

    Args:
        communicator: the communicator of the group.
        store: a store that all groups reach.
        rank: this process's rank in the group.
        num_ranks: the number of ranks in the group.
        size: the number of ranks in the merged group.
        timeout: the limit for the ranks of this group, and then for the other groups.
        name: the name of the group, for errors.

    Raises:
        DistStoreError: other groups did not come within `timeout`, or a group that had
            come gave up or its rank 0 died. Ranks other than 0 also raise it if rank 0
            could not use the store.
        ValueError: the groups have more than `size` ranks in total, or pass different
            sizes.
    """
    size = operator.index(size)
    communicator.barrier(timeout, False)
    message = np.zeros(_MESSAGE_BYTES, np.uint8)
    if rank != 0:
        communicator.broadcast(message, 0, timeout + _GRACE, False)
        return _read_message(message)
    try:
        offset = _Arrival(store, num_ranks, size, timeout, name).offset()
        text = "{} {}".format(*offset)
    except BaseException as error:
        text = _kept(error, f"rank 0 of group {name!r} raised ")
        with suppress(DistError):  # the others have gone: this error came first
            _tell(communicator, message, text, timeout)
        raise
    _tell(communicator, message, text, timeout)
    return offset


def _tell(
    communicator: Communicator, message: np.ndarray, text: str, timeout: timedelta
) -> None:
    data = text.encode()[:_MESSAGE_BYTES]
    message[: len(data)] = np.frombuffer(data, np.uint8)
    communicator.broadcast(message, 0, timeout, False)


def _read_message(message: np.ndarray) -> MergeOffset:
    text = message.tobytes().rstrip(b"\0").decode(errors="replace")
    if text[0].isdigit():
        return MergeOffset(*map(int, text.split()))
    raise _error(text)


def _kept(error: BaseException, raised: str) -> str:
    """Return `error` as text, from which `_error` makes a similar error."""
    kind = "ValueError" if isinstance(error, ValueError) else "DistStoreError"
    text = str(error)
    if not text.startswith(CALL):
        text = f"{CALL}: {raised}{error!r}"
    return f"{kind}:{text}"


def _error(kept: str) -> Exception:
    kind, _, text = kept.partition(":")
    return ValueError(text) if kind == "ValueError" else DistStoreError(text)


class _Arrival:
    """One attempt of a group to merge, on its rank 0."""

    def __init__(
        self, store: Store, num_ranks: int, size: int, timeout: timedelta, name: str
    ) -> None:
        self._store = store
        self._num_ranks = num_ranks
        self._size = size
        self._timeout = timeout
        self._name = name
        self._found: MergeRecord | None = None
        """The record before this group was added."""

    def offset(self) -> MergeOffset:
        """See `find_offset`."""
        try:
            found = self._come()
            self._wait(found.attempt)
        except BaseException as error:
            if self._found is not None:
                with suppress(Exception):  # the store itself may be the cause
                    failure = _kept(error, f"{self._subject} raised ")
                    self._give_up(self._found.attempt, failure)
            raise
        return MergeOffset(found.attempt, found.come)

    @property
    def _subject(self) -> str:
        return f"rank 0 of group {self._name!r}"

    def _come(self) -> MergeRecord:
        """Add this group to the attempt, or end it; return the previous record."""
        found = MergeRecord()

        def with_this_group(data: bytes | None) -> bytes:
            nonlocal found
            found = MergeRecord.read(data)
            if found.is_full():
                found = found.next()
            if death := found.death():
                found = found.next(f"DistStoreError:{death}")
            self._found = found
            problem = self._problem(found)
            if problem:
                return found.next(f"ValueError:{problem}").write()
            return replace(
                found,
                size=self._size,
                come=found.come + self._num_ranks,
                processes=[*found.processes, process_identity()],
            ).write()

        change(self._store, KEY, with_this_group)
        problem = self._problem(found)
        if problem:
            raise ValueError(problem)
        return found

    def _problem(self, found: MergeRecord) -> str:
        if found.come and found.size != self._size:
            return (
                f"{CALL}: group {self._name!r} is to be merged to {self._size} ranks, "
                f"a group that came before to {found.size}; it must be the same number"
            )
        if found.come + self._num_ranks > self._size:
            return (
                f"{CALL}: the groups have more than {self._size} ranks together: "
                f"{found.come} came before, and group {self._name!r} has "
                f"{self._num_ranks}"
            )
        return ""

    def _wait(self, attempt: int) -> None:
        for _ in poll(self._timeout):
            if self._has_ended(now := self._look(), attempt):
                return
        missing = list(range(now.come, self._size))
        problem = (
            f"{CALL}: {self._subject} timed out: waited "
            f"{self._timeout.total_seconds():g} s (its timeout) for {len(missing)} of "
            f"{self._size} ranks, which did not come: {missing}"
        )
        self._give_up(attempt, f"DistStoreError:{problem}")
        # they may have come at the last moment
        if not self._has_ended(self._look(), attempt):
            raise DistStoreError(problem)

    def _look(self) -> MergeRecord:
        return MergeRecord.read(look(self._store, KEY))

    def _has_ended(self, now: MergeRecord, attempt: int) -> bool:
        """Return whether all groups have come.

        Raises:
            DistStoreError, ValueError: the attempt has failed.
        """
        if attempt in now.failures:
            raise _error(now.failures[attempt])
        if now.attempt > attempt or now.is_full():
            return True
        if death := now.death():
            raise DistStoreError(death)
        return False

    def _give_up(self, attempt: int, failure: str) -> None:
        """End the attempt for all groups, unless it has ended."""

        def without_it(data: bytes | None) -> bytes:
            now = MergeRecord.read(data)
            has_ended = now.attempt != attempt or now.is_full()
            return (now if has_ended else now.next(failure)).write()

        change(self._store, KEY, without_it)
