"""Call: one operation of a group as a value, with the arguments that the caller passed.

All code that carries, wraps or watches operations takes Calls: a backend's
communicator, a communicator per device, a coalescing block, a user's own group class. A
new operation is a new name with the same fields. No code reads the arrays before a
communicator takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
"""The operations that the package itself calls."""

_TELLING = ("recv_status", "probe", "iprobe")


@dataclass(slots=True)
class Call:
    """An operation with its arguments; ranks are ranks of the group.

    Nobody changes one. (A frozen dataclass takes three times as long to make.)
    """

    op: str
    """The name of the public function; see `OPERATIONS`."""
    output: Any = None
    """The array that it writes, a list with one per rank, or a list of such lists."""
    input: Any = None
    """The array that it reads. An operation in place has the same array in both."""
    timeout: timedelta | None = None
    """None means the group's timeout."""
    async_op: bool = False
    root: int = -1
    """The root; -1 if the operation has none."""
    reduce_op: RedOpType | ReduceOp = ReduceOp.SUM
    peer: int | None = None
    """The peer of a message; None means any source."""
    tag: int = 0
    """The tag of a message; `ANY_TAG` means any tag that a program can use."""
    output_splits: Sequence[int] | None = None
    input_splits: Sequence[int] | None = None

    @property
    def returns_work(self) -> bool:
        """Whether `submit` returns a `Work`.

        It does if the call is asynchronous. It also does, with a Work that has ended,
        if the call reports which message came by `Work.envelope`. (`iprobe` returns
        None if no message has come.)
        """
        return self.async_op or self.op in _TELLING

    def outputs(self) -> list[Any]:
        """Return the arrays that it writes, as a list."""
        return _listed(self.output)

    def inputs(self) -> list[Any]:
        """Return the arrays that it reads, as a list."""
        return _listed(self.input)

    def singles(self) -> list[Call] | None:
        """Return the single operations of a coalesced one; None for any other.

        Raises:
            RuntimeError: the lists differ in length.
        """
        op = self.op.removesuffix("_coalesced")
        if op == self.op:
            return None
        inputs, outputs = self.inputs(), self.outputs()
        if op == "all_gather":  # a list per rank, each with one array per input
            for row in outputs:
                _check_length(self.op, row, inputs)
            outputs = [[row[i] for row in outputs] for i in range(len(inputs))]
        _check_length(self.op, outputs, inputs)
        return [
            replace(self, op=op, output=output, input=input)
            for output, input in zip(outputs, inputs, strict=True)
        ]

    def writes_on(self, rank: int) -> bool:
        """Return whether this rank's outputs are written."""
        is_root = rank == self.root
        return not is_root if self.op == "broadcast" else is_root or self.op != "reduce"

    def mapped(self, rank: int, change: Callable[[Any, bool, bool], Any]) -> Call:
        """Return the call of `rank` with another object in the place of each array.

        `change(array, is_read, is_written)` returns it. An array that occurs several
        times is changed once.
        """
        if self.input is self.output and not isinstance(self.input, list | None):
            one = change(self.input, True, self.writes_on(rank))
            return self._with(one, one)
        read = _ids(self.input)
        written = _ids(self.output) if self.writes_on(rank) else set()
        changed: dict[int, Any] = {}

        def changed_once(array: Any) -> Any:
            key = id(array)
            if key not in changed:
                changed[key] = change(array, key in read, key in written)
            return changed[key]

        input = _each(self.input, changed_once)
        return self._with(_each(self.output, changed_once), input)

    def device(self) -> str:
        """Return the device type of the first array; "cpu" if there is none.

        Raises:
            TypeError: the first argument is not an array.
        """
        first: Any = self.output
        if first is None or (isinstance(first, list) and not first):
            inputs = self.inputs()
            first = inputs[0] if inputs else None
        while isinstance(first, list) and first:
            first = first[0]
        return "cpu" if first is None else device_of(first)

    def _with(self, output: Any, input: Any) -> Call:
        # dataclasses.replace does the same, but slowly.
        rest = self.output_splits, self.input_splits
        message = self.peer, self.tag
        kept = self.timeout, self.async_op, self.root, self.reduce_op
        return Call(self.op, output, input, *kept, *message, *rest)


def _check_length(op: str, outputs: list[Any], inputs: list[Any]) -> None:
    if len(outputs) != len(inputs):
        raise RuntimeError(
            f"{op}: a list of outputs has {len(outputs)} arrays, expected "
            f"{len(inputs)}, one per input"
        )


def _ids(arrays: Any) -> set[int]:
    """Return the ids of the arrays of a list, or of a list of lists."""
    if isinstance(arrays, list):
        return {each for part in arrays for each in _ids(part)}
    return {id(arrays)}


def _each(arrays: Any, change: Callable[[Any], Any]) -> Any:
    """Return `change` of each array, in lists as `arrays` is."""
    if isinstance(arrays, list):
        return [_each(part, change) for part in arrays]
    return None if arrays is None else change(arrays)


def _listed(arrays: Any) -> list[Any]:
    if arrays is None:
        return []
    return arrays if isinstance(arrays, list) else [arrays]
