"""NcclComm: a communicator of NCCL on one device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from allhands.backends.nccl import library as nccl_library
from allhands.backends.nccl.capture import allow_captures
from allhands.backends.nccl.options import config_of
from allhands.options import NcclOptions

__all__ = ["NcclComm", "current_device", "number_of", "on_device", "unique_id"]

_NO_COLOR = -1
_MOST_STREAMS = 64
_MOST_EVENTS = 1024
_NOTHING = nullcontext()


def unique_id() -> bytes:
    """Return the id of a new communicator, for all members."""
    return bytes(nccl_library.load().get_unique_id())


def current_device() -> int:
    """Return the number of the GPU that this thread uses.

    If it has used none, this is the GPU of its local rank.

    Raises:
        RuntimeError: there is no GPU.
    """
    from cuda.core import Device

    if _context():
        return int(Device().device_id)
    num_devices = len(Device.get_all_devices())
    if not num_devices:
        raise RuntimeError("backend nccl: CUDA's driver finds no GPU here")
    return int(os.environ.get("LOCAL_RANK", "0")) % num_devices


@contextmanager
def on_device(number: int) -> Iterator[None]:
    """Let this thread use a GPU while in the context."""
    from cuda.core import Device

    before = int(Device().device_id) if _context() else number
    Device(number).set_current()
    try:
        yield
    finally:
        if before != number:
            Device(before).set_current()


class NcclComm:
    """NCCL's end of a group on this rank; the caller sees to it that calls take turns.

    Methods raise `NCCLError` of the bindings.
    """

    def __init__(
        self,
        members: tuple[int, ...],
        rank: int,
        device: int,
        options: NcclOptions,
        connect: Callable[[Any], Any],
    ) -> None:
        """Connect all members; waits for them without limit.

        `members` are ranks of the group, `rank` is the place of this one among them.
        `connect` makes NCCL's communicator with a configuration.
        """
        from cuda.bindings import driver
        from cuda.core import Device, Stream, StreamOptions

        self.nccl = nccl_library.load()
        self.members, self.rank, self.device = members, rank, device
        self._current_context = driver.cuCtxGetCurrent
        self._stream_from = Stream.from_handle
        self._streams: dict[int, Any] = {}
        self._events: list[Any] = []
        self._config = config_of(self.nccl, options)
        self._ops: dict[Any, int] = {}
        self._is_freed = False
        with on_device(device):
            self._context = _context()
            priority = -1 if options.is_high_priority_stream else 0
            self.stream = Device(device).create_stream(
                options=StreamOptions(nonblocking=True, priority=priority)
            )
            """For operations that run beside the work of the program."""
            self.stream_handle = int(self.stream.handle)
            self.handle = connect(self._config.ptr)

    @classmethod
    def meeting(
        cls,
        members: tuple[int, ...],
        rank: int,
        device: int,
        options: NcclOptions,
        unique_id: bytes,
    ) -> NcclComm:
        """Connect members that have the same id; see `__init__`."""
        nccl = nccl_library.load()
        ids = 1, bytearray(unique_id)
        connect = partial(nccl.comm_init_rank_scalable, len(members), rank, *ids)
        return cls(members, rank, device, options, connect)

    def split(self, parts: list[list[int]], options: NcclOptions) -> NcclComm | None:
        """Return the communicator of the part that this rank is in; None: of none.

        All members call it, with parts of their places, and wait for each other.
        """
        mine = next((n for n, part in enumerate(parts) if self.rank in part), None)
        if mine is None:
            with self.in_use():
                config = config_of(self.nccl, options)
                self.nccl.comm_split(self.handle, _NO_COLOR, 0, config.ptr)
            return None
        part = parts[mine]
        place = part.index(self.rank)
        connect = partial(self.nccl.comm_split, self.handle, mine, place)
        members = tuple(range(len(part)))
        return NcclComm(members, place, self.device, options, connect)

    def in_use(self) -> AbstractContextManager[None]:
        """Let this thread use the GPU while in the context."""
        code, context = self._current_context()
        is_current = not int(code) and int(context) == self._context
        return _NOTHING if is_current else on_device(self.device)

    def stream_of(self, handle: int) -> Any:
        """Return a stream of the program."""
        stream = self._streams.get(handle)
        if stream is None:
            if len(self._streams) >= _MOST_STREAMS:
                self._streams.clear()
            stream = self._streams[handle] = self._stream_from(handle)
        return stream

    def follow(self, stream: Any) -> None:
        """Let `self.stream` wait for what `stream` has been given."""
        event = self.record(stream)
        self.stream.wait(event)
        self.reuse(event)

    def record(self, stream: Any) -> Any:
        """Return an event that occurs when the stream has come here."""
        try:
            return stream.record(self._events.pop())
        except IndexError:
            return stream.record()

    def reuse(self, event: Any) -> None:
        """Keep an event that has occurred, for `record`."""
        if len(self._events) < _MOST_EVENTS:
            self._events.append(event)

    def check(self) -> None:
        """Raise the error of an operation under way, if one has failed."""
        if not self._is_freed:
            state = self.nccl.comm_get_async_error(self.handle)
            self.nccl.check_status(int(state))

    def last_error(self) -> str:
        """Return what NCCL says of its latest error; empty if it says nothing."""
        return "" if self._is_freed else str(self.nccl.get_last_error(self.handle))

    def premultiplied(self, scalar: Any, dtype: int) -> int:
        """Return an operation that sums what each rank has multiplied by its scalar."""
        key = scalar.tobytes(), dtype
        if key not in self._ops:
            host = int(self.nccl.ScalarResidence.HostImmediate)
            self._ops[key] = self.nccl.red_op_create_pre_mul_sum(
                scalar.ctypes.data, dtype, host, self.handle
            )
        return self._ops[key]

    def free(self) -> None:
        """Give it back; waits until all members do. For a thread of the package."""
        if not self._is_freed:
            self._is_freed = True
            allow_captures()
            self.nccl.comm_finalize(self.handle)
            self.nccl.comm_destroy(self.handle)

    def abort(self) -> None:
        """End all its operations on this rank, as soon as NCCL can.

        Any thread may call it, also while another one is in a call of NCCL.
        """
        if self._is_freed:
            return
        self._is_freed = True
        handle, name = self.handle, "allhands aborts NCCL"
        # A thread between two calls of one operation gets an error from the next one.
        self.handle = self.nccl.Comm()

        def abort() -> None:  # NCCL waits until the device has left its kernels
            allow_captures()
            self.nccl.comm_abort(handle)

        threading.Thread(target=abort, name=name, daemon=True).start()


def number_of(device_id: Any) -> int | None:
    """Return the number of a GPU, given as 1, "cuda:1" or a `torch.device`."""
    if device_id is None:
        return None
    number = getattr(device_id, "index", None)
    if number is None or callable(number):
        text = str(device_id).rpartition(":")[2]
        number = int(text) if text.isdecimal() else None
    return number


def _context() -> int:
    """Return the handle of this thread's context of CUDA; 0 if it has none."""
    from cuda.bindings import driver

    code, context = driver.cuCtxGetCurrent()
    return 0 if int(code) else int(context)  # an error: nobody has begun to use CUDA
