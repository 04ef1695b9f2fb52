"""Backend `gloo`: torch's Gloo moves arrays in CPU memory.

The core checks the arguments, as for the native engine, so that Gloo gets none with
which it would crash, hang or compute wrong results. Strided arrays are packed. torch's
Gloo group is made over a store of its own, which nothing else uses.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from allhands._C import Buffer, CheckedCall
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.gloo.library import why_no_gloo
from allhands.backends.gloo.work import GlooMessage
from allhands.backends.polled import FIRST_OWN_TAG
from allhands.backends.polled_rows import PolledRows, begin_nothing
from allhands.backends.polled_work import Begun, Subject
from allhands.backends.watched import WatchedCommunicator, meet, met
from allhands.errors import DistBackendError
from allhands.options import RedOpType, ReduceOp
from allhands.store import PrefixStore, Store

__all__ = ["GlooCommunicator", "create"]

_NUM_TAGS = 1 << 30
"""Gloo has twice as many; the other half is for this package."""
_BEYOND = timedelta(seconds=30)
"""Gloo waits longer by this time, because this package's errors say more."""
_LONGEST_S = 100 * 365 * 86_400.0
"""The most of that; Gloo counts nanoseconds, in 64 bits."""


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `registry.make_communicator`. Waits until every member has come.

    Raises:
        TypeError: `pg_options` is given; this backend has none.
        RuntimeError: torch is not installed.
        RankFailedError: a member died before it came or connected.
        DistStoreError: a member did not come or connect in time.
        DistBackendError: Gloo could not connect the members.
    """
    store = met(name, "gloo", options, pg_options, why_no_gloo())
    made = GlooCommunicator(store, options)
    # Gloo fails on a member that still connects if another one already closes the
    # group.
    try:
        meet("connected", store, options, name)
    except BaseException:
        made.close(0.0)
        raise
    return made


class GlooCommunicator(WatchedCommunicator, PolledRows):
    """One rank's end of a group; thread-safe."""

    library_error: type[Exception] = RuntimeError

    def __init__(self, store: Store, options: CommunicatorOptions) -> None:
        self._group: Any = None
        super().__init__(store, options)
        self._group = self._connect(store, options)
        self.set_timeout(options.timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        """See `Communicator.set_timeout`."""
        from allhands.backends.gloo.plain import PlainAllReduce  # imports torch

        super().set_timeout(timeout)
        if self._group is not None:
            beyond = _beyond(self._limit)
            self._plain_all_reduce = PlainAllReduce(self._group, beyond)

    def _connect(self, store: Store, options: CommunicatorOptions) -> Any:
        """Make torch's group, which connects all members."""
        from torch.distributed import ProcessGroupGloo

        from allhands.store.lent_store import LentStore

        self._lent = LentStore(PrefixStore("pairs", store))  # Python must hold it
        given = ProcessGroupGloo._Options()
        given._timeout = options.timeout
        given._devices = [ProcessGroupGloo.create_device(hostname=self._address())]
        rank, size = options.group_rank, options.group_size
        try:
            return ProcessGroupGloo(self._lent, rank, size, given)
        except RuntimeError as error:
            raise self.library_failed(Subject("making the group"), error) from error

    def _address(self) -> str:
        """Return the address of this rank for others, as the native engine does."""
        me = self._members[self.rank]
        if all(member.host == me.host for member in self._members):
            return "127.0.0.1"
        first, _, _ = me.endpoints.partition(",")
        return first.rpartition(":")[0].strip("[]")

    def library_failed(self, subject: Subject, error: Exception) -> DistBackendError:
        """See `PolledGroup.library_failed`."""
        reason = self.look(subject)  # says who died, which Gloo does not
        if reason is not None:
            return reason
        [text, *_] = str(error).splitlines() or [repr(error)]
        return DistBackendError(f"{subject}: {self.title}: Gloo says: {text}")

    def _begin(
        self, checked: CheckedCall, op: RedOpType | ReduceOp, limit: float
    ) -> Begun:
        from allhands.backends.gloo.collectives import GlooCollective

        timeout = _beyond(limit)
        return GlooCollective(self._group, checked, op, timeout).begin()

    def _start_send(self, row: Buffer, peer: int, tag: int) -> GlooMessage:
        from allhands.backends.gloo.collectives import as_bytes

        tag = self._tag(tag)
        self._refuse_own(peer)
        return GlooMessage(self._group.send([as_bytes(row)], peer, tag))

    def _start_recv(self, row: Buffer, peer: int | None, tag: int) -> GlooMessage:
        from allhands.backends.gloo.collectives import as_bytes

        tag = self._tag(tag)
        if peer is None:
            work = self._group.recv_anysource([as_bytes(row)], tag)
        else:
            self._refuse_own(peer)
            work = self._group.recv([as_bytes(row)], peer, tag)
        return GlooMessage(work, is_received=True)

    def _refuse_own(self, peer: int) -> None:
        if peer == self.rank:
            raise ValueError(
                f"rank {peer} is this process: Gloo has no messages of a rank to "
                f'itself; backend "native" has'
            )

    def _tag(self, tag: int) -> int:
        if tag >= FIRST_OWN_TAG:
            return _NUM_TAGS + (tag - FIRST_OWN_TAG) % _NUM_TAGS
        if tag >= _NUM_TAGS:
            raise ValueError(
                f"tag {tag}: backend gloo has tags from 0 to {_NUM_TAGS - 1}"
            )
        return tag

    def _free(self, is_whole: bool) -> None:
        if not is_whole:
            _abandoned.append((self._group, self._lent))
        self._group, self._plain_all_reduce = None, begin_nothing


_abandoned: list[Any] = []
"""Groups with messages for which a thread still waits."""


def _beyond(limit: float) -> timedelta:
    """Return Gloo's own limit of an operation that has this one, in seconds."""
    return timedelta(seconds=min(limit, _LONGEST_S)) + _BEYOND
