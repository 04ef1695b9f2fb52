"""Call: one operation of a group as a value, its arguments as the caller passed them.

Everything that carries, wraps or watches operations takes Calls: a backend's
communicator, one per device, a coalescing block, a group class of a user's own. A new
operation is a new name with the same fields. Arrays are not looked at before a
communicator takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from allhands.arrays import device_of
from allhands.options import RedOpType, ReduceOp

__all__ = ["OPERATIONS", "Call"]

OPERATIONS = (
    *("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single", "scan"),
    *("exscan", "broadcast", "all_gather", "all_gather_single", "gather"),
    *("gather_single", "scatter", "all_to_all", "all_to_all_single", "barrier"),
    *("all_reduce_coalesced", "all_gather_coalesced", "all_gather_single_coalesced"),
    *("reduce_scatter_single_coalesced", "send", "recv", "recv_status", "probe"),
    "iprobe",
)
"""What the package itself calls."""

_TELLING = ("recv_status", "probe", "iprobe")


@dataclass(frozen=True, slots=True)
class Call:
    """An operation with its arguments; ranks are ranks of the group."""

    op: str
    """The name of the public function; see `OPERATIONS`."""
    output: Any = None
    """What it writes: an array, a list with one per rank, a list of such lists."""
    input: Any = None
    """What it reads. An operation in place has the same array in both."""
    timeout: timedelta | None = None
    """None: the group's."""
    async_op: bool = False
    root: int = -1
    """Where the operation has one."""
    reduce_op: RedOpType | ReduceOp = ReduceOp.SUM
    peer: int | None = None
    """Of a message; None for any source."""
    tag: int = 0
    """Of a message; `ANY_TAG` for any that a program can use."""
    output_splits: Sequence[int] | None = None
    input_splits: Sequence[int] | None = None

    @property
    def returns_work(self) -> bool:
        """Whether `submit` returns a `Work`.

        Where the call is asynchronous, and one that has ended where it is to tell which
        message came: `Work.envelope`. (`iprobe`: None where none has.)
        """
        return self.async_op or self.op in _TELLING

    def outputs(self) -> list[Any]:
        """What it writes, as a list."""
        return _listed(self.output)

    def inputs(self) -> list[Any]:
        """What it reads, as a list."""
        return _listed(self.input)

    def singles(self) -> list[Call] | None:
        """What a coalesced operation is several of; None of any other operation.

        Raises:
            RuntimeError: its lists differ in length.
        """
        op = self.op.removesuffix("_coalesced")
        if op == self.op:
            return None
        inputs, outputs = self.inputs(), self.outputs()
        if op == "all_gather":  # a list per rank, each with one per input
            for row in outputs:
                _check_length(self.op, row, inputs)
            outputs = [[row[i] for row in outputs] for i in range(len(inputs))]
        _check_length(self.op, outputs, inputs)
        return [
            replace(self, op=op, output=output, input=input)
            for output, input in zip(outputs, inputs, strict=True)
        ]

    def device(self) -> str:
        """The type of device of its first array; "cpu" where it has none.

        Raises:
            TypeError: that is no array.
        """
        first: Any = [*self.outputs(), *self.inputs(), None][0]
        while isinstance(first, list) and first:
            first = first[0]
        return "cpu" if first is None else device_of(first)


def _check_length(op: str, outputs: list[Any], inputs: list[Any]) -> None:
    if len(outputs) != len(inputs):
        raise RuntimeError(
            f"{op}: a list of outputs has {len(outputs)} arrays, expected "
            f"{len(inputs)}, one per input"
        )


def _listed(arrays: Any) -> list[Any]:
    if arrays is None:
        return []
    return arrays if isinstance(arrays, list) else [arrays]
