"""CUDA and NCCL on CPU memory, as far as backend `nccl` uses them; ranks are threads.

It stands in for the bindings where there is no GPU: `install(monkeypatch)`. Operations
run in a thread per communicator, in their order; events and streams only count what has
ended. Tests on a GPU are in tests/engines/test_gpus.py.
"""

import ctypes
import itertools
import queue
import secrets
import sys
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np

from allhands.backends import registry
from allhands.backends.nccl import library as nccl_library

local = threading.local()
relaxed = set()
"""The names of the threads that a capture elsewhere does not keep from CUDA."""
_handles = itertools.count(1)
_streams = {}
_shared = {}
_lock = threading.Lock()
LIMIT = 100.0


class Stream:
    """A stream: what was passed to it and may not have ended."""

    def __init__(self):
        self.handle = next(_handles)
        self.pending = []
        self.is_captured = False
        _streams[self.handle] = self

    @staticmethod
    def from_handle(handle):
        return _streams[handle]

    def wait(self, other):
        self.pending = [*self.pending, *other.pending]

    def record(self, event=None):
        self.pending = [each for each in self.pending if not each.done()]
        event = event or SimpleEvent()
        event.pending = self.pending
        return event

    def synchronize(self):
        for each in self.pending:
            each.result(LIMIT)

    def free(self, memory):
        """Free memory of the device once what was passed before has ended."""
        for each in self.pending:
            each.add_done_callback(lambda _: memory)


class SimpleEvent:
    @property
    def is_done(self):
        return all(each.done() for each in self.pending)


def current():
    """This thread's current stream."""
    if not hasattr(local, "stream"):
        local.stream = Stream()
    return local.stream


class Device:
    def __init__(self, number=None):
        self.device_id = local.device if number is None else number

    @staticmethod
    def get_all_devices():
        return [Device(0), Device(1)]

    def set_current(self):
        local.device = self.device_id

    def create_stream(self, options):
        stream = Stream()
        stream.priority = options["priority"]
        return stream

    def allocate(self, size, stream):
        return Allocated(size, stream)


class Allocated:
    """Memory of a device; it is freed in the order of its stream."""

    def __init__(self, size, stream):
        self._stream, self._bytes = stream, np.empty(size, np.uint8)
        self.handle = self._bytes.ctypes.data

    def __del__(self):
        self._stream.free(self._bytes)


def _copy(to, source, size, stream):
    _streams[stream].synchronize()
    ctypes.memmove(to, source, size)
    return (0,)


driver = SimpleNamespace(
    CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2),
    cuThreadExchangeStreamCaptureMode=lambda mode: relaxed.add(
        threading.current_thread().name
    ),
    cuStreamIsCapturing=lambda stream: (0, int(_streams[stream].is_captured)),
    cuMemcpyDtoDAsync=_copy,
    cuMemcpyHtoDAsync=_copy,
    cuMemcpyDtoHAsync=_copy,
    cuCtxGetCurrent=lambda: (
        (0, local.device + 1) if hasattr(local, "device") else (3, None)
    ),
)
core = SimpleNamespace(
    Device=Device, Stream=Stream, StreamOptions=lambda **options: options
)


class NCCLError(Exception):
    pass


class Shared:
    """A communicator as all its ranks see it."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots = [None] * size
        self.mail = {(a, b): queue.Queue() for a in range(size) for b in range(size)}
        self.meeting = threading.Barrier(size)
        self.colors = [None] * size
        self.parts = {}

    def exchange(self, rank, what):
        self.slots[rank] = what
        self.barrier.wait(LIMIT)
        return list(self.slots)


class Comm:
    """One rank's end: a thread that carries out what is passed to it."""

    def __init__(self, shared, rank):
        self.shared, self.rank = shared, rank
        self.scalars = {}
        self.num_splits = 0
        self.error = 0
        self._queue = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def run(self, functions, stream):
        done = Future()
        before = _streams[stream].pending
        _streams[stream].pending = [*before, done]
        self._queue.put((functions, before, done))

    def close(self):
        self._queue.put(None)

    def _serve(self):
        while (given := self._queue.get()) is not None:
            functions, before, done = given
            try:
                for each in before:
                    each.result(LIMIT)
                for function in functions:
                    function()
            except threading.BrokenBarrierError:
                self.error = 6
            done.set_result(None)


_TYPES = ["i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
_REDUCE = [np.sum, np.prod, np.max, np.min, np.mean]


def _at(address, count, dtype):
    memory = ctypes.c_ubyte * max(count * np.dtype(dtype).itemsize, 1)
    row = np.frombuffer(memory.from_address(address), np.uint8)
    return row[: count * np.dtype(dtype).itemsize].view(dtype)


def _pass(comm, stream, function, is_send=False):
    """Let the communicator run it, or the group that this thread is in."""
    if getattr(local, "depth", 0):
        local.group.append((comm, stream, function, is_send))
    else:
        comm.run([function], stream)


def _collective(comm, stream, mine, finish):
    def function():
        shared = comm.shared
        result = finish(shared.exchange(comm.rank, mine().copy()))
        if result is not None:
            to, values = result
            to[:] = values
        shared.barrier.wait(LIMIT)

    _pass(comm, stream, function)


def _input(comm, address, count, dtype, op):
    row = _at(address, count, _TYPES[dtype])
    factor = comm.scalars.get(op)
    return row if factor is None else (row * factor).astype(row.dtype)


def _total(rows, op):
    function = _REDUCE[op] if op < len(_REDUCE) else np.sum
    return function(np.stack(rows), axis=0).astype(rows[0].dtype)


def all_reduce(source, to, count, dtype, op, comm, stream):
    target = _at(to, count, _TYPES[dtype])
    _collective(
        comm,
        stream,
        lambda: _input(comm, source, count, dtype, op),
        lambda rows: (target, _total(rows, op)),
    )


def reduce(source, to, count, dtype, op, root, comm, stream):
    target = _at(to, count, _TYPES[dtype])
    _collective(
        comm,
        stream,
        lambda: _input(comm, source, count, dtype, op),
        lambda rows: (target, _total(rows, op)) if comm.rank == root else None,
    )


def reduce_scatter(source, to, count, dtype, op, comm, stream):
    target = _at(to, count, _TYPES[dtype])
    mine = slice(comm.rank * count, (comm.rank + 1) * count)
    _collective(
        comm,
        stream,
        lambda: _input(comm, source, count * comm.shared.size, dtype, op),
        lambda rows: (target, _total([row[mine] for row in rows], op)),
    )


def broadcast(source, to, count, dtype, root, comm, stream):
    target = _at(to, count, _TYPES[dtype])
    _collective(
        comm,
        stream,
        lambda: _at(source, count, _TYPES[dtype]),
        lambda rows: (target, rows[root].copy()),
    )


def all_gather(source, to, count, dtype, comm, stream):
    target = _at(to, count * comm.shared.size, _TYPES[dtype])
    _collective(
        comm,
        stream,
        lambda: _at(source, count, _TYPES[dtype]),
        lambda rows: (target, np.concatenate(rows)),
    )


def send(source, count, dtype, peer, comm, stream):
    row = _at(source, count, _TYPES[dtype])
    box = comm.shared.mail[comm.rank, peer]
    _pass(comm, stream, lambda: box.put(row.copy()), is_send=True)


def recv(to, count, dtype, peer, comm, stream):
    target = _at(to, count, _TYPES[dtype])
    box = comm.shared.mail[peer, comm.rank]

    def function():
        while True:
            try:
                target[:] = box.get(timeout=0.05)
                return
            except queue.Empty:
                if comm.shared.barrier.broken:
                    raise threading.BrokenBarrierError from None

    _pass(comm, stream, function)


def group_start():
    local.depth = getattr(local, "depth", 0) + 1
    if local.depth == 1:
        local.group = []


def group_end():
    local.depth -= 1
    if local.depth:
        return
    for each in sorted(local.group, key=lambda each: not each[3]):  # sends first
        comm, stream, function, _ = each
        comm.run([function], stream)


def comm_init_rank_scalable(size, rank, count, ids, config):
    with _lock:
        shared = _shared.setdefault(bytes(ids), Shared(size))
    shared.barrier.wait(LIMIT)
    return Comm(shared, rank)


def comm_split(comm, color, key, config):
    shared = comm.shared
    shared.colors[comm.rank] = color, key, comm.rank
    shared.meeting.wait(LIMIT)
    part = sorted(each[1:] for each in shared.colors if each[0] == color)
    with _lock:
        place = comm.num_splits, color
        mine = shared.parts.setdefault(place, Shared(len(part)))
    comm.num_splits += 1
    shared.meeting.wait(LIMIT)
    return NoComm() if color < 0 else Comm(mine, part.index((key, comm.rank)))


def comm_abort(comm):
    comm.shared.barrier.abort()
    comm.shared.meeting.abort()
    comm.close()


def red_op_create_pre_mul_sum(scalar, dtype, residence, comm):
    op = 5 + len(comm.scalars)
    comm.scalars[op] = _at(scalar, 1, _TYPES[dtype]).copy()
    return op


def check_status(status):
    if status:
        raise NCCLError(f"RemoteError ({status})")


class NoComm:
    """What is no communicator."""

    rank = 0

    def run(self, functions, stream):
        raise NCCLError("InvalidArgument (4)")


nccl = SimpleNamespace(
    NCCLError=NCCLError,
    Comm=NoComm,
    Config=lambda: SimpleNamespace(ptr=0),
    ScalarResidence=SimpleNamespace(HostImmediate=1),
    get_unique_id=lambda: secrets.token_bytes(16),
    comm_get_async_error=lambda comm: comm.error,
    get_last_error=lambda comm: "a peer is gone" if comm.error else "",
    comm_finalize=lambda comm: None,
    comm_destroy=Comm.close,
    **{
        function.__name__: function
        for function in (
            *(all_reduce, reduce, reduce_scatter, broadcast, all_gather, send, recv),
            *(group_start, group_end, comm_init_rank_scalable, comm_abort),
            comm_split,
            *(red_op_create_pre_mul_sum, check_status),
        )
    },
)


def install(monkeypatch):
    """Let backend `nccl` find these in the place of the bindings."""
    monkeypatch.setattr(nccl_library, "why_not_found", lambda: "")
    monkeypatch.setattr(registry, "why_not_found", lambda: "")
    monkeypatch.setattr(nccl_library, "load", lambda: nccl)
    modules = {
        "cuda": SimpleNamespace(core=core, bindings=SimpleNamespace(driver=driver)),
        "cuda.core": core,
        "cuda.bindings": SimpleNamespace(driver=driver),
        "cuda.bindings.driver": driver,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
