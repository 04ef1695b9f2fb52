"""AllhandsBackend: the native engine as one of several backends of a torch group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from allhands.torch.uncompiled import uncompiled

__all__ = ["CAN_BE_MADE", "AllhandsBackend"]


def _can_be_made() -> bool:
    try:
        c10d.Backend(0, 1)
    except TypeError:  # there is no constructor
        return False
    return True


CAN_BE_MADE = _can_be_made()
"""Whether this torch takes backends that are made in Python; torch 2.13 does not."""


def _of_the_group(name: str) -> Callable[..., Any]:
    def operation(self: Any, *arguments: Any) -> Any:
        return getattr(self.group, name)(*arguments)

    operation.__doc__ = f"See `AllhandsProcessGroup.{name}`."
    return operation


def _no(_: Any) -> bool:
    return False


_Backend: Any = c10d.Backend  # for type checkers, whether or not torch is installed


@uncompiled
class AllhandsBackend(_Backend):  # type: ignore[misc]
    """Serves the CPU tensors of a group of torch.

    It passes every call of torch on to `group`, and is as thread-safe as `group`.

    Args:
        group: an `AllhandsProcessGroup` of the same ranks, or a proxy of one.
    """

    def __init__(self, group: Any) -> None:
        super().__init__(group.rank(), group.size())
        self.group = group
        name, timeout = group.getBackendName(), group.timeout
        self._options = c10d.Backend.Options(name, timeout)

    @classmethod
    def for_torch(cls, group: Any) -> AllhandsBackend:
        """Return a backend that lives, with its group, until torch shuts it down.

        torch's C++ may hold the object without its Python part, which has the methods.
        """
        backend = cls(group)
        _in_use.add(backend)
        return backend

    def shutdown(self) -> None:
        """See `AllhandsProcessGroup.shutdown`."""
        _in_use.discard(self)
        self.group.shutdown()

    def abort(self) -> None:
        """See `AllhandsProcessGroup.abort`."""
        _in_use.discard(self)
        self.group.abort()

    def getBackendName(self) -> str:
        """The name of the backend."""
        return str(self.group.getBackendName())

    @property
    def options(self) -> Any:
        """The name and the timeout; torch copies them for groups that it splits off."""
        return self._options

    def split(
        self, store: Any, ranks: Sequence[int], options: Any
    ) -> AllhandsBackend | None:
        """Return the backend of a group of `ranks`, or None if this rank is not one."""
        timeout: timedelta = options._timeout
        part = self.group.part(store, list(ranks), timeout, options.group_name)
        return part and AllhandsBackend.for_torch(part)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Return False: tensors are in the memory of this process."""
        return False

    supports_splitting = property(lambda _: True)
    # torch would look for these in C++, which looks in Python again, without end.
    supports_coalescing = property(_no)
    supports_reconfigure = property(_no)
    supports_shrinking = property(_no)
    supports_window = property(_no)
    _supports_time_estimate = property(_no)

    start_coalescing = _of_the_group("_start_coalescing")
    end_coalescing = _of_the_group("_end_coalescing")
    _get_sequence_number_for_group = _of_the_group("_get_sequence_number_for_group")
    _set_sequence_number_for_group = _of_the_group("_set_sequence_number_for_group")
    all_gather_single = _of_the_group("all_gather_single")
    all_gather_single_coalesced = _of_the_group("all_gather_single_coalesced")
    all_to_all_single = _of_the_group("all_to_all_single")
    allgather = _of_the_group("allgather")
    allgather_coalesced = _of_the_group("allgather_coalesced")
    allreduce = _of_the_group("allreduce")
    allreduce_coalesced = _of_the_group("allreduce_coalesced")
    allreduce_sparse = _of_the_group("allreduce")
    alltoall = _of_the_group("alltoall")
    barrier = _of_the_group("barrier")
    broadcast = _of_the_group("broadcast")
    gather = _of_the_group("gather")
    monitored_barrier = _of_the_group("monitored_barrier")
    recv = _of_the_group("recv")
    recv_anysource = _of_the_group("recv_anysource")
    reduce = _of_the_group("reduce")
    reduce_scatter = _of_the_group("reduce_scatter")
    reduce_scatter_single = _of_the_group("reduce_scatter_single")
    reduce_scatter_single_coalesced = _of_the_group("reduce_scatter_single_coalesced")
    scatter = _of_the_group("scatter")
    send = _of_the_group("send")
    set_timeout = _of_the_group("set_timeout")


_in_use: set[AllhandsBackend] = set()
