"""NcclFlight: the flight recorder of a group that NCCL serves.

It has the newest operations, as the native engine's recorder does. When an operation
ended is known once the thread of the group, or a thread that asks, has seen it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from allhands import settings
from allhands._C import Buffer
from allhands.backends.call import Call
from allhands.backends.nccl.request import NcclRequest, name_of
from allhands.backends.observer import OperationRecord

__all__ = ["NcclFlight", "main_array", "observed"]

_BY_OUTPUT = ("reduce_scatter", "reduce_scatter_single", "scatter", "recv")
"""Operations on the size of whose output on a rank all ranks agree."""


class NcclFlight:
    """Keeps the newest operations; the caller holds the group's lock."""

    def __init__(self) -> None:
        length = settings.record_length.get()
        self._collectives = deque[NcclRequest](maxlen=length)
        self._messages = deque[NcclRequest](maxlen=length)

    def add(self, request: NcclRequest) -> None:
        """Note an operation that begins."""
        kept = self._messages if request.is_message else self._collectives
        kept.append(request)

    def told(self, collectives: int, messages: int) -> list[dict[str, Any]]:
        """Return the entries with higher numbers, as `flight_entries` does."""
        parts = (self._collectives, collectives), (self._messages, messages)
        return [
            request.told()
            for kept, after in parts
            for request in kept
            if request.number > after
        ]


def observed(group: str, call: Call, described: Call, sequence: int) -> OperationRecord:
    """Return what an observer is told of a call, which a backend has `described`."""
    array = main_array(described)
    return OperationRecord(
        group,
        call.op,
        sequence,
        "" if array is None else name_of(array.dtype),
        0 if array is None else array.count,
        call.root,
        -1 if call.peer is None else call.peer,
        call.tag,
        call.async_op,
    )


def main_array(described: Call) -> Buffer | None:
    """Return the array on whose size the ranks agree."""
    first: Any = described.output if described.op in _BY_OUTPUT else described.input
    while isinstance(first, list):
        first = first[0] if first else None
    array: Buffer | None = first
    return array
