"""Backend `nccl`: NVIDIA's NCCL moves arrays between GPUs.

The core checks the arguments, as for the native engine; NCCL would hang or crash with
wrong ones. NCCL carries an operation out in a stream of the GPU: in the caller's
current stream, or for `async_op` in one of the group, which runs beside it. Calls
return when the operation is in its stream. NCCL's communicators are made by the first
operation, because only that says which GPU a rank uses.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

import numpy as np

from allhands._C import CheckedCall
from allhands.backends import nccl_library
from allhands.backends.call import Call
from allhands.backends.call_thread import CallThread
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.nccl_batch import NcclBatch
from allhands.backends.nccl_call import NcclCall
from allhands.backends.nccl_collectives import (
    NcclCollective,
    check_reduction,
    recv,
    send,
)
from allhands.backends.nccl_comm import (
    NcclComm,
    current_device,
    unique_id,
)
from allhands.backends.nccl_watchdog import NcclWatchdog
from allhands.backends.nccl_work import NcclRequest, NcclWork
from allhands.backends.polled import COLLECTIVES
from allhands.backends.polled_work import Begun, PolledWork, Subject
from allhands.backends.watched import WatchedCommunicator, store_of
from allhands.errors import (
    CollectiveTimeoutError,
    DistBackendError,
    DistError,
    DistStoreError,
)
from allhands.options import NcclOptions, to_seconds
from allhands.rendezvous.ranges import in_ranges
from allhands.store import Store

__all__ = ["NcclCommunicator", "create"]

_MESSAGES = ("send", "recv")
_REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single")
_ABSENT = ("scan", "exscan")
_LOOK = 0.25
"""Seconds after which a call of NCCL that has not returned is looked after."""
_LONGEST_FREE = 5.0
"""Seconds that a rank waits for NCCL to give back what a group has taken."""
_BLOCKING_WAIT = "TORCH_NCCL_BLOCKING_WAIT"


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `registry.make_communicator`. It waits for nobody.

    Raises:
        TypeError: `pg_options` are not `NcclOptions`.
        RuntimeError: NVIDIA's bindings or CUDA's driver are missing.
    """
    if not isinstance(pg_options, NcclOptions | None):
        raise TypeError(
            f"backend {name!r} takes NcclOptions as pg_options, got {pg_options!r}"
        )
    problem = nccl_library.why_not_found()
    if problem:
        raise RuntimeError(f"backend {name!r}: {problem}")
    store = store_of("nccl", options)
    return NcclCommunicator(store, options, pg_options or NcclOptions())


class NcclCommunicator(WatchedCommunicator):
    """One rank's end of a group; thread-safe."""

    def __init__(
        self, store: Store, options: CommunicatorOptions, given: NcclOptions
    ) -> None:
        super().__init__(store, options)
        self._own_lock = threading.RLock()
        self.lock = self._own_lock
        self._store = store
        self._given = given
        self._bound = _number_of(options.device_id)
        self._comms: dict[tuple[int, ...], NcclComm] = {}
        self._batch: NcclBatch | None = None
        self._call: tuple[Subject, float, float] | None = None
        """The call of NCCL that a thread is in, since when, and its limit."""
        self._watchdog = NcclWatchdog(
            f"allhands nccl {options.group_id}", self._look_after
        )
        self._is_for_host = given.blocking_wait
        if self._is_for_host is None:
            self._is_for_host = os.environ.get(_BLOCKING_WAIT, "0") == "1"

    @cached_property
    def library_error(self) -> type[Exception]:  # type: ignore[override]
        """See `PolledGroup.library_error`; a group that is not used loads no NCCL."""
        error: type[Exception] = nccl_library.load().NCCLError
        return error

    @contextmanager
    def together(self) -> Iterator[None]:
        """See `Communicator.together`; NCCL carries the operations out as one.

        If no operation came before, all ranks of the group must have one in the block.
        """
        with self.lock:
            if self._batch is not None:
                yield
                return
            self._batch = batch = NcclBatch()
            try:
                yield
            finally:
                self._batch = None
                with self._in_call(Subject("batch"), to_seconds(self._timeout)):
                    batch.launch()
            batch.finish()

    def pause(self, requests: list[Any], pauses: Iterator[None]) -> None:
        """See `PolledGroup.pause`."""
        next(pauses)

    def look(self, subject: Subject) -> DistBackendError | None:
        """See `PolledGroup.look`; it asks NCCL, too."""
        for comm in list(self._comms.values()):
            try:
                comm.check()
            except self.library_error as error:
                return self.library_failed(subject, error)
        return super().look(subject)

    def note_failed(self, subject: Subject, error: DistBackendError) -> None:
        """See `PolledGroup.note_failed`: NCCL goes on after no failure."""
        self._break(error)

    def library_failed(self, subject: Subject, error: Exception) -> DistBackendError:
        """See `PolledGroup.library_failed`."""
        if self.failure is not None:  # which has aborted the call
            return self.failure
        dead = self._dead()
        if dead:
            return self._died(subject, dead)
        told = {comm.last_error() for comm in list(self._comms.values())} - {""}
        return DistBackendError(
            f"{subject}: {self.title}: NCCL says: {': '.join([str(error), *told])}"
        )

    def _break(self, error: DistBackendError) -> None:
        is_first = self.failure is None
        super()._break(error)
        if is_first:
            for comm in list(self._comms.values()):
                comm.abort()

    def _prepared(self, call: Call) -> Callable[[Call, float], PolledWork] | None:
        """See `PolledCommunicator._prepared`."""
        if call.op in _MESSAGES:
            self._check_peer(call)
            return partial(self._begin, NcclCall(call, self.rank), None)
        if call.op not in COLLECTIVES or call.op in _ABSENT:
            return None
        arrays = NcclCall(_with_an_array(call), self.rank)
        checked = CheckedCall(arrays.described, self.rank, self.size)
        if call.op in _REDUCTIONS:
            check_reduction(call.reduce_op, checked.inputs[0].dtype)
        return partial(self._begin, arrays, checked)

    def _check_peer(self, call: Call) -> None:
        if call.peer is None:
            raise NotImplementedError(
                "NCCL receives only from a rank that is named; backend native also "
                "receives from any"
            )
        if call.peer == self.rank and self._batch is None:
            raise ValueError(
                f"{call.op}: rank {self.rank} is this process: NCCL has messages of a "
                f"rank to itself only within batch_isend_irecv"
            )

    def _begin(
        self, arrays: NcclCall, checked: CheckedCall | None, call: Call, limit: float
    ) -> PolledWork:
        """Pass an operation to NCCL."""
        from cuda.core import Stream

        is_message = call.op in _MESSAGES
        more = f" with rank {call.peer}" if is_message else ""
        number = 0 if is_message else self._num_collectives + 1
        subject = Subject(call.op, number, call.peer, more)
        comm = self._comm_for(arrays, subject, limit)
        self._num_collectives = max(number, self._num_collectives)
        library, batch = arrays.library, self._batch
        request = NcclRequest(comm)
        with comm.in_use():
            stream = comm.stream
            if library is not None:
                current = Stream.from_handle(library.current_stream(comm.device))
                if call.async_op or batch is not None:
                    stream.wait(current)
                else:
                    stream = current
            moved = arrays.move(comm.device, stream, stream is not comm.stream)
            if not arrays.is_ready and checked is not None:
                checked = CheckedCall(moved, self.rank, self.size)
            if batch is not None:
                batch.begin(comm)
                batch.add(arrays, request, stream)
            with self._in_call(subject, limit):
                _enqueue(comm, checked, moved, arrays, int(stream.handle))
            if batch is None:
                arrays.enqueue_copies_back()
                request.event = stream.record()
        is_kept = stream is comm.stream
        end = arrays.end if arrays.has_host_output else _nothing
        begun = Begun([request], end, arrays if is_kept else None)
        outputs = call.outputs() if is_kept else []
        work = NcclWork(self, subject, begun, limit, outputs)
        work.is_for_host = (
            bool(self._is_for_host) or arrays.has_host_output or library is None
        )
        if library is not None:
            work.let_stream_wait = partial(
                _let_stream_wait, library.current_stream, comm.device
            )
        return work

    def _finish(self, work: PolledWork) -> None:
        """Wait for the GPU, if the caller needs it; its stream is in order anyway."""
        if work.is_for_host:  # type: ignore[attr-defined]
            super()._finish(work)

    def _comm_for(self, arrays: NcclCall, subject: Subject, limit: float) -> NcclComm:
        """Return the communicator for an operation; the first one makes it.

        A first message needs only the two ranks, so it makes one for these.
        """
        members = tuple(range(self.size))
        is_batch = self._batch is not None
        if subject.peer is not None and not is_batch and members not in self._comms:
            members = tuple(sorted({self.rank, subject.peer}))
        comm = self._comms.get(members)
        device = arrays.device
        if comm is None:
            if device is None:
                device = current_device() if self._bound is None else self._bound
            comm = self._connect(members, device, subject, limit)
        if device not in (None, comm.device):
            raise ValueError(
                f"{subject}: the arrays are on GPU {device}, but {self.title} began on "
                f"GPU {comm.device}: a group uses one GPU on each rank"
            )
        return comm

    def _connect(
        self, members: tuple[int, ...], device: int, subject: Subject, limit: float
    ) -> NcclComm:
        """Let NCCL connect `members`, all of whom are here or will come."""
        key = in_ranges(list(members))
        end = time.monotonic() + limit
        self._store.set(f"{key}/here/{self.rank}", b"")
        if self.rank == members[0]:
            self._store.set(f"{key}/id", unique_id())
        late = partial(self._not_connected, members, subject, limit)
        try:
            self._store.wait([f"{key}/id"], timedelta(seconds=limit))
        except DistStoreError as error:
            failure = late()
            self._break(failure)
            raise failure from error
        its_id = self._store.get(f"{key}/id")
        place = members.index(self.rank)

        def connect() -> None:
            comm = NcclComm(members, place, its_id, device, self._given)
            self._comms[members] = comm
            if self.failure is not None:  # nobody waits any more
                comm.abort()

        thread = CallThread("connects NCCL")
        try:
            left = max(end - time.monotonic(), 0.0)
            self._await_thread(thread.start(connect), subject, left, late)
        except DistError as error:
            self._break(DistBackendError(f"{self.title}: {error}"))
            raise
        finally:
            thread.stop()
        return self._comms[members]

    def _not_connected(
        self, members: tuple[int, ...], subject: Subject, limit: float
    ) -> CollectiveTimeoutError:
        key = in_ranges(list(members))
        missing = [r for r in members if not self._store.check([f"{key}/here/{r}"])]
        error = CollectiveTimeoutError(
            f"{subject} timed out: {self.title} waited {limit:g} s (its timeout) for "
            f"NCCL to connect ranks {key}; missing {missing}"
        )
        error.ranks = missing
        return error

    @contextmanager
    def _in_call(self, subject: Subject, limit: float) -> Iterator[None]:
        """Let the thread of the group look after a call of NCCL, which may block."""
        self._call = subject, time.monotonic(), limit
        self._watchdog.wake()
        try:
            yield
        finally:
            self._call = None

    def _look_after(self) -> bool:
        """Return whether anything is under way; abort what will not end."""
        call = self._call
        if call is not None:
            subject, start, limit = call
            waited = time.monotonic() - start
            if waited < _LOOK:
                return True
            if waited >= limit:
                everyone = tuple(range(self.size))
                self._break(self._not_connected(everyone, subject, limit))
                return True
            reason = self.look(subject)
            if reason is not None:
                self._break(reason)  # so that the call returns
            return True
        if not self._own_lock.acquire(timeout=_LOOK):
            return True  # a call has begun meanwhile
        try:
            return self._advance_all()
        finally:
            self._own_lock.release()

    def _free(self, is_whole: bool) -> None:
        self._watchdog.stop()
        comms = list(self._comms.values())
        if is_whole and comms:
            thread = CallThread("frees NCCL")
            requests = [thread.start(comm.free) for comm in comms]
            thread.stop()
            end = time.monotonic() + _LONGEST_FREE
            while not requests[-1].is_over() and time.monotonic() < end:
                requests[-1].block()
        else:
            for comm in comms:
                comm.abort()


def _with_an_array(call: Call) -> Call:
    """Return the call; in the place of a barrier, which NCCL lacks, a reduction."""
    if call.op != "barrier":
        return call
    nothing = np.zeros(1, np.uint8)
    return Call("all_reduce", nothing, nothing, call.timeout, call.async_op)


def _enqueue(
    comm: NcclComm,
    checked: CheckedCall | None,
    moved: Call,
    arrays: NcclCall,
    stream: int,
) -> None:
    """Pass an operation to NCCL; only a message has nothing `checked`."""
    if checked is not None:
        op, copy_of = moved.reduce_op, arrays.copy_of
        NcclCollective(comm, checked, op, stream, copy_of).enqueue()
        return
    assert moved.peer is not None, "NCCL's messages name their peer"
    peer = comm.members.index(moved.peer)
    if moved.op == "send":
        send(comm, moved.input, peer, stream)
    else:
        recv(comm, moved.output, peer, stream)


def _let_stream_wait(
    current_stream: Callable[[int], int], device: int, event: Any
) -> None:
    from cuda.core import Stream

    Stream.from_handle(current_stream(device)).wait(event)


def _number_of(device_id: Any) -> int | None:
    """Return the number of a GPU, given as 1, "cuda:1" or a `torch.device`."""
    if device_id is None:
        return None
    number = getattr(device_id, "index", None)
    if number is None or callable(number):
        text = str(device_id).rpartition(":")[2]
        number = int(text) if text.isdecimal() else None
    return number


def _nothing() -> None:
    pass
