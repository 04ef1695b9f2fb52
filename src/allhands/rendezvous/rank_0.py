"""MeetingOfRank0: rank 0 waits for all ranks, and tells them the outcome."""

from __future__ import annotations

import os
from datetime import timedelta

from allhands.errors import DistNetworkError, DistStoreError
from allhands.rendezvous.host_copy import digest_of
from allhands.rendezvous.identity import Introduction
from allhands.rendezvous.meeting import ANSWER, OUTCOME, SLICE_S, Meeting
from allhands.rendezvous.outcome import TOKEN_BYTES, Outcome
from allhands.rendezvous.roster import Roster, composed
from allhands.store.limits import poll

__all__ = ["MeetingOfRank0"]

# A longer roster goes to each host once. This is more work than to each rank, but fewer
# bytes.
_SHORT_ROSTER = 1024


class MeetingOfRank0(Meeting):
    """One attempt of rank 0 to enter a world."""

    def _meet(self) -> Roster:
        attendance = self._attendance
        said = self._waiting.until(
            self._wait_for_all, self._look_at_all, attendance.who_is_missing
        )
        for rank, each in enumerate(said):
            if each.world_size != self._size:
                raise self._other_size(rank, each.world_size)
        self._compare_asked({rank: each.asked for rank, each in enumerate(said)})
        roster = Roster([each.identity for each in said], os.urandom(TOKEN_BYTES))
        self._forget_the_world_before(OUTCOME, "roster", "num_told")
        self._store.set(OUTCOME, self._outcome(roster).to_bytes())
        self._lagging = list(range(1, self._size))
        self._waiting.until(
            self._wait_for_readers, self._look_at_readers, attendance.who_lags
        )
        return roster

    def _slice_s(self) -> float:
        return SLICE_S

    def _wait_for_all(self, limit: timedelta) -> list[Introduction] | None:
        if absent := self._attendance.keys_of_absent():
            self._store.wait(absent, limit)
        said = self._attendance.introductions()
        if said is None:  # a rank that gave up may come again
            self._waiting.pause(limit)
        return said

    def _wait_for_readers(self, limit: timedelta) -> bool:
        if self._lagging:
            self._store.wait(self._attendance.keys_of_readers(self._lagging), limit)
        return True

    def _outcome(self, roster: Roster) -> Outcome:
        text = composed(roster.identities)
        token = roster.token.hex()
        if len(text) <= _SHORT_ROSTER:
            return Outcome(token=token, roster=text)
        digest = digest_of(text.encode())
        return Outcome(token=token, digest=digest, copy=self._copy.publish(text))

    def _look_at_all(self) -> None:
        """See `_need`."""
        for rank, pid in self._attendance.who_died().items():
            self._need(rank, pid)
        if self._endings is not None:
            for rank in self._attendance.who_ended_well(self._endings):
                self._need_one_that_ended(rank)

    def _look_at_readers(self) -> None:
        """See `_need`; later waits name only the ranks that lag."""
        self._look_at_all()
        self._lagging = self._attendance.lagging()

    def lost(self, error: DistNetworkError) -> DistNetworkError:
        """Return the error of this rank after loss of the store: never `HostLeft`."""
        return DistNetworkError(
            f"{self._subject} lost the store before all ranks had come: {error}"
        )

    def _leave(self, error: BaseException) -> None:
        self._call_off(error)
        self._attendance.give_up(0)
        self._take_out_the_dead()
        self._attendance.retract(OUTCOME)

    def _call_off(self, error: BaseException) -> None:
        """Tell the ranks that have come; return when they have read it.

        The store may end with this rank; then the others could not even say who is
        missing.
        """
        text = str(error)
        is_ours = text.startswith(self._subject)
        reason = text.removeprefix(self._subject) if is_ours else f"raised {error!r}"
        attendance = self._attendance
        listeners = {*attendance.present()} - {0, *self._dead()}
        problem = reason.strip() or "gave up"
        self._store.set(OUTCOME, Outcome(problem=problem).to_bytes())
        patience = ANSWER if isinstance(error, Exception) else 0.2  # Ctrl-C acts soon
        for _ in poll(timedelta(seconds=patience), longest=0.05):
            if not listeners.intersection(attendance.present()):
                return

    def _dead(self) -> list[int]:
        """Return the ranks that died; none if the reason to give up hides them."""
        try:
            return [*self._attendance.who_died()]
        except DistStoreError:  # a rank's value in the store is not valid
            return []

    def _take_out_the_dead(self) -> None:
        """Leave the meeting for dead ranks, so that other processes may replace them.

        The others know of them, and only rank 0 looks for their traces.
        """
        attendance, worlds = self._attendance, self._worlds
        for rank in self._dead():
            attendance.take_out(rank)
            if worlds.add(f"join/{rank}", 0) == self._world:  # it had come this far
                worlds.add(f"join/{rank}", -1)
