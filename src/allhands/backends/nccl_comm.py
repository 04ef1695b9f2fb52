"""NcclComm: a communicator of NCCL on one device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from allhands.backends import nccl_library
from allhands.options import NcclOptions

__all__ = ["NcclComm", "current_device", "on_device", "unique_id"]


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
        unique_id: bytes,
        device: int,
        options: NcclOptions,
    ) -> None:
        """Connect all members; waits for them without limit.

        `members` are ranks of the group, `rank` is the place of this one among them.
        """
        from cuda.core import Device, StreamOptions

        self.nccl = nccl_library.load()
        self.members, self.rank, self.device = members, rank, device
        self._config = _config(self.nccl, options)
        self._ops: dict[Any, int] = {}
        self._is_freed = False
        with on_device(device):
            self._context = _context()
            priority = -1 if options.is_high_priority_stream else 0
            self.stream = Device(device).create_stream(
                options=StreamOptions(nonblocking=True, priority=priority)
            )
            """For operations that run beside the work of the program."""
            self.handle = self.nccl.comm_init_rank_scalable(
                len(members), rank, 1, bytearray(unique_id), self._config.ptr
            )

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let this thread use the GPU while in the context."""
        if _context() == self._context:
            yield
            return
        with on_device(self.device):
            yield

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
        """Give it back; waits until all members do."""
        if not self._is_freed:
            self._is_freed = True
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
        abort: Callable[[Any], None] = self.nccl.comm_abort
        # NCCL waits until the device has left its kernels.
        threading.Thread(target=abort, args=(handle,), name=name, daemon=True).start()


def _context() -> int:
    """Return the handle of this thread's context of CUDA; 0 if it has none."""
    from cuda.bindings import driver

    code, context = driver.cuCtxGetCurrent()
    return 0 if int(code) else int(context)  # an error: nobody has begun to use CUDA


def _config(nccl: Any, options: NcclOptions) -> Any:
    """Return NCCL's form of the options, for as long as the communicator lives."""
    config = nccl.Config()
    for name in ("cga_cluster_size", "min_ctas", "max_ctas", "traffic_class"):
        value = getattr(options, name)
        if value is not None:
            setattr(config, name, value)
    if options.net_name is not None:
        config.net_name = options.net_name
    return config
