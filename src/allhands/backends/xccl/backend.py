"""Backend `xccl`: Intel's oneCCL moves arrays in CPU memory.

The core checks the arguments, as for the native engine. oneCCL for CPU arrays has no
messages: its functions for them end the process. It also cannot end an operation whose
peer does not come. So a thread of each group calls it, and ranks that wait for the
thread stop to wait when their time is over, or when they learn that a peer is gone.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, NoReturn

from allhands._C import Buffer, CheckedCall
from allhands.backends.call_thread import CallThread
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.polled_rows import PolledRows
from allhands.backends.polled_work import Begun, Subject
from allhands.backends.watched import WatchedCommunicator, met
from allhands.backends.xccl.collectives import XcclCollective
from allhands.backends.xccl.library import OneCclError, load, why_not_found
from allhands.errors import DistBackendError, DistStoreError
from allhands.options import RedOpType, ReduceOp, to_seconds
from allhands.store import Store

__all__ = ["XcclCommunicator", "create"]

_LONGEST_FREE = 5.0
"""Seconds that a rank waits for oneCCL to give back what a group has taken."""


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `registry.make_communicator`. Waits until every member has come.

    Raises:
        TypeError: `pg_options` is given; this backend has none.
        RuntimeError: the loader does not find oneCCL.
        RankFailedError: a member died before it came or connected.
        DistStoreError: a member did not come or connect in time.
        DistBackendError: oneCCL could not connect the members.
    """
    store = met(name, "xccl", options, pg_options, why_not_found())
    return XcclCommunicator(store, options)


class XcclCommunicator(WatchedCommunicator, PolledRows):
    """One rank's end of a group; thread-safe."""

    library_error: type[Exception] = OneCclError

    def __init__(self, store: Store, options: CommunicatorOptions) -> None:
        super().__init__(store, options)
        self._library = load()
        self._thread = CallThread("xccl")
        self._comm = ctypes.c_void_p()
        self._connect(store, to_seconds(options.timeout))

    def _connect(self, store: Store, limit: float) -> None:
        """Let oneCCL connect all members."""
        subject = Subject("making the group")

        def join() -> None:
            if self.rank == 0:
                store.set("id", self._library.unique_id())
            self._comm = self._library.join(self.size, store.get("id"), self.rank)

        late = DistStoreError(
            f"{subject}: {self.title} waited {limit:g} s (its timeout) for oneCCL to "
            f"connect {self.size} ranks: timed out"
        )
        try:
            self._await_thread(self._thread.start(join), subject, limit, lambda: late)
        except BaseException as error:
            self._thread.start(self._give_back)  # it may connect yet
            self._thread.stop()
            if isinstance(error, OneCclError):
                raise self.library_failed(subject, error) from error
            raise

    def library_failed(self, subject: Subject, error: Exception) -> DistBackendError:
        """See `PolledGroup.library_failed`."""
        reason = self.look(subject)
        if reason is not None:
            return reason
        return DistBackendError(f"{subject}: {self.title}: oneCCL says: {error}")

    def _begin(
        self, checked: CheckedCall, op: RedOpType | ReduceOp, limit: float
    ) -> Begun:
        place = self.rank, self.size
        return XcclCollective(
            self._library, self._thread, self._comm, checked, op, place
        ).begin()

    def _start_send(self, row: Buffer, peer: int, tag: int) -> NoReturn:
        _refuse_messages()

    def _start_recv(self, row: Buffer, peer: int | None, tag: int) -> NoReturn:
        _refuse_messages()

    def _free(self, is_whole: bool) -> None:
        if is_whole:
            request = self._thread.start(self._give_back)
            end = time.monotonic() + _LONGEST_FREE
            while not request.Test() and time.monotonic() < end:
                request.block()
        self._thread.stop()

    def _give_back(self) -> None:
        if self._comm:
            self._library.destroy(self._comm)


def _refuse_messages() -> NoReturn:
    raise NotImplementedError(
        "oneCCL has no messages between CPU arrays: its functions for them end the "
        'process. A group made by new_group(backend="native") has messages'
    )
