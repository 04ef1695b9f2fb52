"""GroupNews: messages between the ranks of a group through the world's store.

It is for groups whose data another library moves, because such a library cannot carry
these messages. A rank writes to the store only if it waits long, breaks the group or
leaves it, so in normal operation this costs nothing. The keys are:

    aborted      why the group broke, on every rank
    left/<rank>  the collectives that it had begun when it left, and why it did, with
                 the exception that ended it
    left         set if there is any of these, so that a look need not ask for each
    at/<rank>    the operation that it waits long for
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.polled_work import Subject
from allhands.backends.remote_exception import heard
from allhands.errors import DistBackendError, DistError, RankFailedError
from allhands.rendezvous.ranges import in_ranges
from allhands.store import Store

__all__ = ["GroupNews"]


class GroupNews:
    """The news of one group; there are none after the store has ended."""

    def __init__(self, store: Store, options: CommunicatorOptions) -> None:
        self._store = store
        self._rank = options.group_rank
        self._size = options.group_size
        self._gone_before: set[int] = set()
        self._has_store = True
        self.reason = ""
        """Why this rank is about to leave."""
        self.cause = ""
        """The same exception as `remote_exception.told` describes it."""

    def tell_abort(self, reason: str) -> None:
        """Break the group for the other ranks."""
        self._tell("aborted", reason)

    def tell_left(self, num_collectives: int) -> None:
        """Note that this rank takes no further part."""
        self._tell(f"left/{self._rank}", [num_collectives, self.reason, self.cause])
        self._tell("left", True)

    def look(self, title: str, subject: Subject) -> DistBackendError | None:
        """Return why the awaited operation will never end; None if nothing says so."""
        self._tell(f"at/{self._rank}", [subject.sequence, str(subject)])
        reason = self._read("aborted")
        if reason is not None:
            return DistBackendError(f"{subject}: {title}: the group broke: {reason}")
        if self._read("left") is None:
            self._gone_before = set()
            return None
        left = {rank: self._read(f"left/{rank}") for rank in self._others(subject)}
        gone = {rank for rank, news in left.items() if news is not None}
        if subject.sequence:
            lacking = sorted(r for r in gone if left[r][0] < subject.sequence)
        elif subject.peer is None:
            lacking = sorted(gone) if len(gone) == len(left) else []
        else:
            lacking = sorted(gone)
        # A message may still be on its way: it has time until the next look.
        is_sure = bool(subject.sequence) or gone == self._gone_before
        self._gone_before = gone
        if not lacking or not is_sure:
            return None
        why = next((f" ({left[r][1]})" for r in lacking if left[r][1]), "")
        error = RankFailedError(
            f"{subject}: {title} needs rank{'s' * (len(lacking) > 1)} "
            f"{in_ranges(lacking)}, which left the group{why}"
        )
        error.ranks = lacking
        causes = (heard(rank, left[rank][2]) for rank in lacking)
        error.__cause__ = next((cause for cause in causes if cause is not None), None)
        return error

    def known(self, subject: Subject) -> tuple[str, list[int]]:
        """Return a clause about the others, and the ranks not known to wait."""
        self._tell(f"at/{self._rank}", [subject.sequence, str(subject)])
        at = {rank: self._read(f"at/{rank}") for rank in self._others(subject)}
        here = [r for r, news in at.items() if news and news[0] == subject.sequence]
        if not subject.sequence:
            here = []
        missing = [rank for rank in at if rank not in here]
        clauses = [f"rank {r} waited last for {at[r][1]}" for r in missing[:4] if at[r]]
        silent = [rank for rank in missing if not at[rank]]
        if silent:
            clauses.append(
                f"rank{'s' * (len(silent) > 1)} {in_ranges(silent)} did not say that "
                f"{'they wait' if len(silent) > 1 else 'it waits'}"
            )
        if here:
            clauses.append(
                f"rank{'s' * (len(here) > 1)} {in_ranges(here)} "
                f"wait{'s' * (len(here) == 1)} for it too"
            )
        return "; ".join(clauses) or "no other rank is in it", missing

    def _others(self, subject: Subject) -> list[int]:
        if subject.peer is not None:
            return [subject.peer]
        return [rank for rank in range(self._size) if rank != self._rank]

    def _tell(self, key: str, what: Any) -> None:
        with self._unless_gone():
            if self._has_store:
                self._store.set(key, json.dumps(what))

    def _read(self, key: str) -> Any:
        with self._unless_gone():
            if self._has_store and self._store.check([key]):
                return json.loads(self._store.get(key))
        return None

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        """Note if the store has ended, as with rank 0; then there are no news."""
        try:
            yield
        except DistError:
            self._has_store = False
