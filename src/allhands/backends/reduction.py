"""Reduction: how another library reduces, by its own operation or by gathering.

The library reduces in an order of its own. If it lacks an operation, the package builds
it from others at no cost: PREMUL_SUM multiplies before the sum, AVG of floats divides
after it. In three cases every rank gathers the arrays and reduces them in rank order,
with the bits of the native engine: 16-bit floats, which the library would round at
every step; averages of integers, which would overflow; and sums of 8- and 16-bit
integers, which Open MPI saturates instead of wrapping if the CPU has AVX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from allhands import _C
from allhands._C import Buffer, DType
from allhands.backends.rows import scratch, unpack, values
from allhands.options import RedOpType, ReduceOp

__all__ = ["FACTOR_BYTES", "Reduction", "reduce_parts"]

FACTOR_BYTES = 32

_NAMES = {
    RedOpType.SUM: "SUM",
    RedOpType.PREMUL_SUM: "SUM",
    RedOpType.AVG: "SUM",
    RedOpType.PRODUCT: "PROD",
    RedOpType.MIN: "MIN",
    RedOpType.MAX: "MAX",
    RedOpType.BAND: "BAND",
    RedOpType.BOR: "BOR",
    RedOpType.BXOR: "BXOR",
}
_LOGICAL = {
    **dict.fromkeys(("SUM", "MAX", "BOR"), "LOR"),
    **dict.fromkeys(("PROD", "MIN", "BAND"), "LAND"),
    "BXOR": "LXOR",
}
_NARROW = {DType.Int8, DType.Int16, DType.UInt8, DType.UInt16}
_FLOATS = {DType.Float32, DType.Float64, DType.Complex64, DType.Complex128}


class Reduction:
    """A reduce operation on elements of one dtype, which the core has checked."""

    def __init__(self, given: RedOpType | ReduceOp, dtype: DType) -> None:
        self.given = given
        self.kind = given if isinstance(given, RedOpType) else given.op
        is_exact = dtype in _FLOATS or self.kind is not RedOpType.AVG
        name = _NAMES[self.kind]
        may_saturate = dtype in _NARROW and name == "SUM"
        is_rounded = dtype in (DType.Float16, DType.BFloat16)
        self.is_gathered = is_rounded or may_saturate or not is_exact
        self.name = _LOGICAL[name] if dtype is DType.Bool else name
        """MPI's name of the operation to use if the arrays are not gathered."""

    @property
    def has_factor(self) -> bool:
        """Whether each rank first multiplies by its own factor."""
        return self.kind is RedOpType.PREMUL_SUM

    def multiply(self, buffer: Buffer) -> None:
        """Run the step before the library's sum, in place."""
        if self.has_factor:
            _C.reduce_buffers(buffer, [buffer], [self.given])

    def divide(self, buffer: Buffer, num_ranks: int) -> None:
        """Run the step after the library's sum, in place."""
        if self.kind is RedOpType.AVG:
            sums = values(buffer)
            with np.errstate(all="ignore"):
                np.divide(sums, num_ranks, out=sums)

    def factor(self) -> np.ndarray[Any, Any]:
        """Return this rank's factor for the ranks that reduce gathered arrays."""
        assert isinstance(self.given, ReduceOp), "only an object has one"
        text = repr(self.given.factor).encode()
        return np.frombuffer(text.ljust(FACTOR_BYTES), np.uint8)

    def reduce(
        self, output: Buffer, inputs: Sequence[Buffer], factors: np.ndarray[Any, Any]
    ) -> None:
        """Reduce the gathered arrays with the `factor` of each rank, one per row."""
        ops: list[Any] = [self.kind] * len(inputs)
        if self.has_factor:
            rows = [bytes(row).decode().strip() for row in factors[: len(inputs)]]
            numbers = [int(t) if t.lstrip("-").isdigit() else float(t) for t in rows]
            ops = [ReduceOp.PREMUL_SUM(number) for number in numbers]
        _C.reduce_buffers(output, inputs, ops)


def reduce_parts(
    reduction: Reduction,
    parts: list[Buffer],
    factors: Any,
    outputs: Sequence[Buffer],
) -> None:
    """Reduce `parts` to the one output; do nothing without parts."""
    if not parts:
        return
    result = scratch(parts[0].dtype, parts[0].count)
    reduction.reduce(result, parts, factors)
    unpack(result, outputs)
