"""Meeting: how a rank other than 0 meets the others of its world; see `exchange`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from allhands import settings
from allhands.errors import DistError, DistNetworkError, DistStoreError, RankFailedError
from allhands.rendezvous.asked import Asked, disagreement
from allhands.rendezvous.attendance import Attendance
from allhands.rendezvous.host_copy import HostCopy
from allhands.rendezvous.identity import Introduction, is_alive, process_identity
from allhands.rendezvous.outcome import Outcome
from allhands.rendezvous.roster import Roster, decomposed
from allhands.rendezvous.waiting import Waiting
from allhands.store import PrefixStore, Store
from allhands.store.endings import Endings
from allhands.store.limits import poll

__all__ = ["ANSWER", "OUTCOME", "SLICE_S", "HostLeft", "Meeting"]

OUTCOME = "outcome"
ANSWER = 2.0
"""Seconds; a rank that does not answer within this time is stopped or dying."""

SLICE_S = 0.3
"""Seconds of waiting before a rank checks the others."""
# With many ranks each checks less often, so that the checks take little CPU time of the
# ranks and of the store's server.
_LOOKS_PER_SECOND = 1000
_LONGEST_SLICE_S = 5.0


class HostLeft(DistNetworkError):
    """The store was lost before rank 0 had come.

    If rank 0 hosts the store, this may have been the store of the previous world, which
    was about to end. Then a rank should look for the next one.
    """


class Meeting:
    """One attempt of this rank to enter a world.

    The arguments are those of `exchange`, and where this process listens.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        operation: str,
        start: float,
        found: Store | None,
        endpoints: str,
        asked: Asked,
    ) -> None:
        self._worlds = store
        self._found = found
        self._rank, self._size = rank, size
        self._endpoints, self._asked = endpoints, asked
        self._subject = f"{operation}: rank {rank} (this process)"
        self._limit = timeout.total_seconds()
        self._deadline = start + self._limit
        self._world = 0  # not known yet
        self._rank_0: Introduction | None = None
        """The introduction of rank 0, after it has come."""
        self._is_called_off = False
        """Whether rank 0 has said that it gives up."""

    def hold(self) -> Roster:
        """Meet the other ranks; see `exchange`."""
        self._world = self._worlds.add(f"join/{self._rank}", 1)
        self._attendance = attendance = Attendance(
            self._worlds, self._world, self._size, self._found
        )
        self._waiting = Waiting(
            *(self._subject, self._rank, self._limit, self._deadline),
            self._slice_s(),
            attendance.is_first_to_tell,
        )
        self._endings = self._endings_of_the_job()
        self._store = attendance.store
        self._copy = HostCopy(self._store)
        me = process_identity(self._endpoints)
        attendance.come(self._rank, Introduction(self._size, me, self._asked))
        try:
            return self._meet()
        finally:
            with suppress(DistError):  # all have read by now, so the store may be gone
                self._copy.close()

    def _meet(self) -> Roster:
        outcome, rank_0 = self._hear_of_rank_0()
        text = outcome.roster or self._copy.fetch(outcome, rank_0.identity)
        identities = decomposed(text, self._size)
        self._forget_the_world_before()
        self._attendance.have_read(self._rank)
        if self._copy.is_kept:
            host = process_identity().host
            peers = [r for r, each in enumerate(identities) if each.host == host]
            with suppress(RuntimeError):  # they can get it elsewhere, too
                keys = self._attendance.keys_of_readers(peers)
                self._store.wait(keys, timedelta(seconds=ANSWER))
        return Roster(identities, bytes.fromhex(outcome.token))

    def _slice_s(self) -> float:
        """Return how long this rank waits before it checks the others."""
        return max(SLICE_S, min(self._size / _LOOKS_PER_SECOND, _LONGEST_SLICE_S))

    def _hear_of_rank_0(self) -> tuple[Outcome, Introduction]:
        """Wait for the outcome that rank 0 writes.

        Raises:
            DistStoreError, ValueError: rank 0 gave up; the message has its reason.
        """
        attendance = self._attendance
        rank_0 = self._waiting.until(
            self._wait_for_rank_0, self._look_at_rank_0, attendance.who_is_missing
        )
        self._rank_0 = rank_0
        if rank_0.world_size > self._size:  # it waits for ranks that do not exist
            raise self._other_size(0, rank_0.world_size)
        outcome = self._waiting.until(
            self._wait_for_outcome, self._look_at_rank_0, attendance.who_is_missing
        )
        if rank_0.world_size != self._size:
            raise self._other_size(0, rank_0.world_size)
        self._is_called_off = bool(outcome.problem)
        self._compare_asked({0: rank_0.asked, self._rank: self._asked})
        if outcome.problem:
            raise DistStoreError(
                f"{self._subject} heard from rank 0: it {outcome.problem}"
            )
        return outcome, rank_0

    def _wait_for_rank_0(self, limit: timedelta) -> Introduction | None:
        text = self._store._get_within(self._attendance.key_of_rank_0(), limit)
        if text:
            return Introduction.read(0, text)
        self._waiting.pause(limit)  # it gave up, and may come again
        return None

    def _wait_for_outcome(self, limit: timedelta) -> Outcome | None:
        text = self._store._get_within(OUTCOME, limit)
        if text:
            return Outcome.read(text)
        if text is None:  # it did not wait for this rank to read
            return Outcome(problem="gave up")
        self._waiting.pause(limit)  # it belonged to another attempt
        return None

    def _look_at_rank_0(self) -> None:
        """See `_need`; if rank 0 is on this host, the store is not asked."""
        if self._rank_0 is not None:
            process = self._rank_0.identity
            if process.host == process_identity().host and is_alive(process):
                return
        self._need(0, self._attendance.dead_process(0))
        if self._rank_0 is None:
            self._need_one_that_ended(0)

    def _endings_of_the_job(self) -> Endings | None:
        """Return what the launcher notes of this world's ranks, if it is the first.

        In a later one, processes may have other numbers.
        """
        if self._found is None or self._world != 1 or settings.store.get() is None:
            return None
        return Endings(self._found, self._size)

    def _need_one_that_ended(self, rank: int) -> None:
        """Refuse to wait for a rank that the launcher has seen end, if it has.

        Raises:
            RankFailedError: the rank ended with exit code 0 before it came.
        """
        pid = None if self._endings is None else self._endings.pid_of(rank)
        if pid is None:
            return
        error = RankFailedError(
            f"{self._subject} needs rank {rank} (pid {pid}), which ended with exit "
            f"code 0 before it came"
        )
        error.ranks = [rank]
        raise error

    def _need(self, rank: int, dead_pid: int | None) -> None:
        """Refuse to wait for a rank that has died.

        Raises:
            RankFailedError: the rank's process, `dead_pid`, has ended.
        """
        if dead_pid is None:
            return
        error = RankFailedError(
            f"{self._subject} needs rank {rank} (pid {dead_pid}), which came and died"
        )
        error.ranks = [rank]
        raise error

    def lost(self, error: DistNetworkError) -> DistNetworkError:
        """Return the error of this rank after the loss of the store."""
        kind = HostLeft if self._rank_0 is None else DistNetworkError
        return kind(
            f"{self._subject} lost the store before all ranks had come: {error}"
        )

    def give_up(self, error: BaseException) -> None:
        """Leave the meeting because of `error`, as if this rank had not come.

        If rank 0 has called the meeting off, it has left before this returns.
        """
        if not self._world:
            return
        with suppress(Exception):  # the store itself may have failed
            self._leave(error)
            self._attendance.let_others_tell()
            self._worlds.add(f"join/{self._rank}", -1)
            if self._is_called_off:
                self._let_rank_0_leave()

    def _leave(self, error: BaseException) -> None:
        self._attendance.give_up(self._rank)

    def _let_rank_0_leave(self) -> None:
        """Wait for rank 0 to leave, so that it no longer awaits this rank."""
        for _ in poll(timedelta(seconds=ANSWER + 1), longest=0.1):
            if not self._store._look(OUTCOME):
                return

    def _other_size(self, rank: int, size: int) -> ValueError:
        return ValueError(
            f"{self._subject} has world_size {self._size}, rank {rank} has {size}; it "
            "must be the same on every rank"
        )

    def _compare_asked(self, asked: Mapping[int, Asked]) -> None:
        """Refuse to meet ranks that ask for another backend.

        Raises:
            ValueError: there are some.
        """
        if told := disagreement(asked):
            raise ValueError(
                f"{self._subject} finds that {told}; every rank must ask for the same"
            )

    def _forget_the_world_before(self, *names: str) -> None:
        """Delete the keys of the previous world, which all ranks have left."""
        if self._world == 1:
            return
        before = PrefixStore(str(self._world - 1), self._worlds)
        with suppress(NotImplementedError):  # a user's store may not support this
            for name in (f"identity/{self._rank}", f"read/{self._rank}", *names):
                before.delete_key(name)
