"""How another library reduces: by an operation of its own, or gathered for our kernels.

It reduces in an order of its own. What it has no operation for is made of those that
it has where that costs nothing: PREMUL_SUM multiplies before, AVG of floats divides
after. 16-bit floats, which it would round at every step, averages of integers, which
would overflow, and sums of 8- and 16-bit integers, which Open MPI lets saturate where
the CPU has AVX instead of wrapping, are gathered, and every rank reduces them in rank
order, with the bits of the native engine.
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
        """MPI's, of the operation that is needed where it is not gathered."""

    @property
    def has_factor(self) -> bool:
        """Whether each rank multiplies by a factor of its own first."""
        return self.kind is RedOpType.PREMUL_SUM

    def multiply(self, buffer: Buffer) -> None:
        """What comes before the library's sum, in place."""
        if self.has_factor:
            _C.reduce_buffers(buffer, [buffer], [self.given])

    def divide(self, buffer: Buffer, num_ranks: int) -> None:
        """What comes after it, in place."""
        if self.kind is RedOpType.AVG:
            sums = values(buffer)
            with np.errstate(all="ignore"):
                np.divide(sums, num_ranks, out=sums)

    def factor(self) -> np.ndarray[Any, Any]:
        """This rank's factor for the others, where they reduce what was gathered."""
        assert isinstance(self.given, ReduceOp), "only an object has one"
        text = repr(self.given.factor).encode()
        return np.frombuffer(text.ljust(FACTOR_BYTES), np.uint8)

    def reduce(
        self, output: Buffer, inputs: Sequence[Buffer], factors: np.ndarray[Any, Any]
    ) -> None:
        """Reduce what was gathered, with the `factor` of each rank, a row each."""
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
    """Reduce `parts` to the one output; nothing where there are none."""
    if not parts:
        return
    result = scratch(parts[0].dtype, parts[0].count)
    reduction.reduce(result, parts, factors)
    unpack(result, outputs)
