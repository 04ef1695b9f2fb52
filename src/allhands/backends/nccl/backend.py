"""Backend `nccl`: NVIDIA's NCCL moves arrays between GPUs.

The core checks the arguments, as for the native engine; NCCL would hang or crash with
wrong ones. NCCL carries an operation out in a stream of the GPU: in the caller's
current stream, or for `async_op` in one of the group, which runs beside it. Calls
return when the operation is in its stream. NCCL's communicators are made by the first
operation, because only that says which GPU a rank uses.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from allhands._C import CheckedCall
from allhands.backends.call import Call
from allhands.backends.call_thread import CallThread
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.gathering import store_of
from allhands.backends.nccl import library as nccl_library
from allhands.backends.nccl.batch import NcclBatch
from allhands.backends.nccl.call import NcclCall, with_an_array
from allhands.backends.nccl.capture import allow_captures, is_captured
from allhands.backends.nccl.collectives import (
    check_reduction,
    enqueue,
)
from allhands.backends.nccl.comm import (
    NcclComm,
    current_device,
    number_of,
    unique_id,
)
from allhands.backends.nccl.flight import NcclFlight, main_array, observed
from allhands.backends.nccl.options import completed
from allhands.backends.nccl.request import NcclRequest
from allhands.backends.nccl.watchdog import LongCall, NcclWatchdog
from allhands.backends.nccl.work import CapturedWork, NcclWork
from allhands.backends.observer import Observer
from allhands.backends.polled import COLLECTIVES
from allhands.backends.polled_work import Begun, Subject, UnderWay
from allhands.backends.watched import WatchedCommunicator, not_built_in
from allhands.backends.work import Work
from allhands.errors import (
    CollectiveTimeoutError,
    DistBackendError,
    DistError,
    DistStoreError,
)
from allhands.options import NcclOptions
from allhands.rendezvous.ranges import in_ranges
from allhands.store import Store

__all__ = ["NcclCommunicator", "create"]

_MESSAGES = ("send", "recv")
_REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single")
_ABSENT = ("scan", "exscan")
_OBSERVED = {*COLLECTIVES, *_MESSAGES} - {*_ABSENT}
_LOOK = 0.25
"""Seconds after which a call of NCCL that has not returned is looked after."""
_LONGEST_FREE = 5.0
"""Seconds that a rank waits for NCCL to give back what a group has taken."""


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `registry.make_communicator`. It waits for nobody.

    Raises:
        TypeError: `pg_options` are not `NcclOptions`.
        RuntimeError: NVIDIA's bindings or CUDA's driver are missing.
    """
    _check_options(name, pg_options)
    problem = nccl_library.why_not_found()
    if problem:
        raise not_built_in(name, "nccl", problem)
    store = store_of("nccl", options)
    divided = options.divided.get("nccl")
    return NcclCommunicator(store, options, completed(pg_options), divided)


class NcclCommunicator(WatchedCommunicator):
    """One rank's end of a group; thread-safe."""

    most_left_alone = sys.maxsize  # the group's thread asks for the end of each

    def __init__(
        self,
        store: Store,
        options: CommunicatorOptions,
        given: NcclOptions,
        comm: NcclComm | None = None,
    ) -> None:
        super().__init__(store, options)
        self._own_lock = threading.RLock()
        self.lock = self._own_lock
        self._store = store
        self._given = given
        self._bound = number_of(options.device_id)
        self._comms: dict[tuple[int, ...], NcclComm] = {}
        if comm is not None:
            self._comms[comm.members] = comm
        self._batch: NcclBatch | None = None
        self._name = options.group_id
        self._observer: Observer | None = None
        self._flight = NcclFlight()
        self._call: NcclRequest | LongCall | None = None
        """The call of NCCL that a thread is in, which may block."""
        self._everyone = tuple(range(self.size))
        self._num_messages = 0
        self._watchdog = NcclWatchdog(
            f"allhands nccl {options.group_id}", self._look_after
        )
        self._is_for_host = given.blocking_wait

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
                self._call = LongCall(Subject("batch"), self._limit)
                self._watchdog.wake()
                try:
                    batch.launch()
                finally:
                    self._call = None
            batch.finish()

    def divide(self, parts: list[list[int]], pg_options: Any) -> dict[str, Any]:
        """See `Communicator.divide`; NCCL divides what it has connected."""
        members = self._everyone
        is_given = isinstance(pg_options, NcclOptions)
        given = completed(pg_options) if is_given else self._given
        with self.lock:
            if self.failure is not None or members not in self._comms:
                return {}
            subject = Subject("split_group")
            self._call = LongCall(subject, self._limit)
            self._watchdog.wake()
            try:
                comm = self._comms[members].split(parts, given)
            except self.library_error as error:
                raise self.library_failed(subject, error) from error
            finally:
                self._call = None
        return {"nccl": comm}

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        observer = self._observer
        if observer is None or call.op not in _OBSERVED:
            return super().submit(call)
        described = NcclCall(with_an_array(call), self.rank).described
        number = 0 if call.op in _MESSAGES else self._num_collectives + 1
        token = observer.before(observed(self._name, call, described, number))
        try:
            work = super().submit(call)
        except BaseException as error:
            observer.after(token, error)
            raise
        observer.after(token, None)
        return work

    def observe(self, observer: Observer | None) -> None:
        """See `Communicator.observe`; for NCCL an operation ends in its stream."""
        self._observer = observer

    def flight_entries(
        self, collectives_after: int = 0, messages_after: int = 0
    ) -> list[dict[str, Any]]:
        """See `Communicator.flight_entries`."""
        with self.lock:
            return self._flight.told(collectives_after, messages_after)

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

    def _prepared(self, call: Call) -> Callable[[Call, float], UnderWay] | None:
        """See `PolledCommunicator._prepared`."""
        if call.op in _MESSAGES:
            self._check_peer(call)
            return partial(self._begin, NcclCall(call, self.rank), None)
        if call.op not in COLLECTIVES or call.op in _ABSENT:
            return None
        arrays = NcclCall(with_an_array(call), self.rank)
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
    ) -> UnderWay:
        """Pass an operation to NCCL."""
        is_message = checked is None
        number = 1 + (self._num_messages if is_message else self._num_collectives)
        library, batch = arrays.library, self._batch
        current = 0 if library is None else library.current_stream(arrays.device or 0)
        is_in_graph = is_captured(current)
        if is_in_graph:
            self._check_captured(arrays, call)
        comm = self._comm_for(arrays, call, number, limit)
        array = main_array(arrays.described)
        request = NcclRequest(self, comm, call, array, number, limit)
        request.library = library
        self._note(request)
        with comm.in_use():
            stream, handle = comm.stream, comm.stream_handle
            if library is not None:
                its_stream = comm.stream_of(current)
                if call.async_op or batch is not None:
                    comm.follow(its_stream)
                else:
                    stream, handle = its_stream, current
                    request.is_in_current = True
            request.stream = handle
            moved = arrays.move(comm.device, stream, request.is_in_current)
            if not arrays.is_ready and checked is not None:
                checked = CheckedCall(moved, self.rank, self.size)
            if batch is not None:
                batch.begin(comm)
                batch.add(arrays, request, stream)
            self._call = request
            self._watchdog.wake()
            try:
                enqueue(comm, checked, moved, arrays, handle)
            finally:
                self._call = None
            if batch is None:
                arrays.enqueue_copies_back()
                if not (is_in_graph and request.is_in_current):
                    request.event = comm.record(stream)
        if is_in_graph:
            request.note_captured()
        elif self._is_for_host or arrays.has_host_arrays or library is None:
            return self._work_of(request, arrays, call, True)
        if request.is_in_current:
            return request
        if is_in_graph:
            return CapturedWork(self, request, arrays, call.outputs())
        return self._work_of(request, arrays, call, False)

    def _work_of(
        self, request: NcclRequest, arrays: NcclCall, call: Call, is_for_host: bool
    ) -> NcclWork:
        """Return a handle; the program's own stream orders who uses the arrays."""
        memory = None if request.is_in_current else arrays
        end = arrays.end if arrays.has_host_arrays else _nothing
        outputs = [] if request.is_in_current else call.outputs()
        begun = Begun([request], end, memory)
        return NcclWork(self, request, begun, outputs, is_for_host)

    def _note(self, request: NcclRequest) -> None:
        """Count an operation that begins, and record it."""
        if request.is_message:
            self._num_messages = request.number
        else:
            self._num_collectives = request.number
        self._flight.add(request)

    def add_work(self, request: NcclRequest) -> NcclWork:
        """See `NcclGroup.add_work`."""
        self._pending.pop(request, None)
        work = NcclWork(self, request, Begun([request], _nothing, None), [], False)
        self._pending[work] = None
        return work

    def _check_captured(self, arrays: NcclCall, call: Call) -> None:
        if arrays.has_host_arrays:
            raise NotImplementedError(
                f"{call.op}: some of the arrays are in CPU memory, which a CUDA graph "
                f"cannot have: call it outside of the capture"
            )
        if call.peer is None and self._everyone not in self._comms:
            raise NotImplementedError(
                f"{call.op}: {self.title} connects with its first operation, which "
                f"cannot be captured: run one before the capture"
            )

    def _finish(self, work: Any) -> None:
        """Wait for the GPU, if the caller needs it; its stream is in order anyway."""
        if work.is_for_host:
            super()._finish(work)

    def _comm_for(
        self, arrays: NcclCall, call: Call, number: int, limit: float
    ) -> NcclComm:
        """Return the communicator for an operation; the first one makes it.

        A first message needs only the two ranks, so it makes one for these.
        """
        members = self._everyone
        if call.peer is not None and self._batch is None and members not in self._comms:
            members = tuple(sorted({self.rank, call.peer}))
        comm = self._comms.get(members)
        device = arrays.device
        if comm is None:
            if device is None:
                device = current_device() if self._bound is None else self._bound
            number = 0 if call.op in _MESSAGES else number
            subject = Subject(call.op, number, call.peer)
            comm = self._connect(members, device, subject, limit)
        elif device is not None and device != comm.device:
            raise ValueError(
                f"{call.op}: the arrays are on GPU {device}, but {self.title} began on "
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
            allow_captures()
            comm = NcclComm.meeting(members, place, device, self._given, its_id)
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

    def _look_after(self) -> bool:
        """Return whether anything is under way; abort what will not end."""
        call = self._call
        if call is not None:
            waited = time.monotonic() - call.start
            if waited < _LOOK:
                return True
            subject, limit = call.subject, call.limit
            if waited >= limit:
                self._break(self._not_connected(self._everyone, subject, limit))
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

    def _advance_all(self) -> bool:
        """See `PolledCommunicator._advance_all`; it asks for the oldest of a stream."""
        with self.lock:
            pending = list(self._pending)
        busy = set[int]()
        for work in pending:
            assert isinstance(work, NcclRequest | NcclWork), "all here are"
            is_asked = work.stream not in busy or work.is_late()
            if is_asked and not work.advance():
                busy.add(work.stream)
        return bool(busy)

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


def _check_options(name: str, pg_options: Any) -> None:
    if not isinstance(pg_options, NcclOptions | None):
        raise TypeError(
            f"backend {name!r} takes NcclOptions as pg_options, got {pg_options!r}"
        )


def _nothing() -> None:
    pass
