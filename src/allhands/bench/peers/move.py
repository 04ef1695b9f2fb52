"""What one of two ranks has to move in a collective, and what remains to do then."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from allhands.bench.data import Data, fresh_zeros

__all__ = ["Array", "Move", "move_of"]

Array = np.ndarray[Any, Any]


class Move(NamedTuple):
    """A rank sends `sent` and receives into `received`; None means nothing.

    If there is a `target`, the rest of the work is to copy the rank's `own` share into
    it,
    and to add what was received where the operation sums.
    """

    sent: Array | None
    received: Array | None
    target: Array | None = None
    own: Array | None = None
    is_summed: bool = False

    def complete(self) -> None:
        """Do the rest of the work."""
        if self.target is None:
            return
        if self.own is not None:
            self.target[:] = self.own
        if self.is_summed:
            assert self.received is not None
            np.add(self.target, self.received, out=self.target)


def move_of(op: str, rank: int, data: Data) -> Move:
    """Return the move of `rank`, 0 or 1; the root, where there is one, is rank 0."""
    other, input, output = 1 - rank, data.input, data.output

    def share(array: Array | None, number: int) -> Array | None:
        start = number * data.share
        return None if array is None else array[start : start + data.share]

    if op == "all_reduce":
        return Move(output, _like(output), output, is_summed=True)
    if op == "reduce":
        if rank == 0:
            return Move(None, _like(output), output, is_summed=True)
        return Move(output, None)
    if op == "reduce_scatter":
        mine = share(input, rank)
        return Move(share(input, other), _like(mine), output, mine, is_summed=True)
    if op == "broadcast":
        return Move(output, None) if rank == 0 else Move(None, output)
    if op == "all_gather":
        return Move(input, share(output, other), share(output, rank), input)
    if op == "gather":
        if rank == 0:
            return Move(None, share(output, 1), share(output, 0), input)
        return Move(input, None)
    if op == "scatter":
        if rank == 0:
            return Move(share(input, 1), None, output, share(input, 0))
        return Move(None, output)
    assert op == "all_to_all", op
    sent, received = share(input, other), share(output, other)
    return Move(sent, received, share(output, rank), share(input, rank))


def _like(array: Array | None) -> Array:
    assert array is not None
    return fresh_zeros(array.size, array.dtype)
