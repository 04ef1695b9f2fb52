"""Peers with torch.distributed's API: this package, and torch with Gloo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from allhands.bench.cells import Cell
from allhands.bench.data import Data
from allhands.bench.peers.base import Absent, Call, Peer

__all__ = ["TorchApi", "as_tensor"]


def as_tensor(array: np.ndarray[Any, Any]) -> Any:
    """Return a torch tensor on the memory of `array`."""
    import torch

    if array.dtype.name == "bfloat16":  # torch.from_numpy does not take it
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class TorchApi(Peer):
    """A rank of a library whose functions are those of `self.dist`."""

    dist: Any

    def barrier(self) -> None:
        """See `Peer.barrier`."""
        self.dist.barrier()

    def wrap(self, cell: Cell, array: np.ndarray[Any, Any]) -> Any:
        """Return `array` in the form that the library takes."""
        raise NotImplementedError

    def prepare(self, cell: Cell, data: Data) -> Call:
        """See `Peer.prepare`."""
        if cell.op == "send_recv":
            return self.ping_pong(cell, partial(self._ends, cell, data))
        if cell.op == "exchange":
            return self.exchange(cell, partial(self._both, cell, data))
        function = self.find(cell.op)
        args = self._arguments(cell, data)
        if cell.mode == "sync":
            return partial(function, *args)
        if cell.mode == "async":
            return lambda: function(*args, async_op=True).wait()
        request: Call = self.find(f"{cell.op}_init")(*args)
        return request

    def find(self, name: str) -> Callable[..., Any]:
        """Return the library's function of this name.

        Raises:
            Absent: the library has no such function.
        """
        function: Callable[..., Any] | None = getattr(self.dist, name, None)
        if function is None:
            raise Absent(f"{self.name} has no {name}")
        return function

    def _arguments(self, cell: Cell, data: Data) -> tuple[Any, ...]:
        """Return the positional arguments."""
        input, output = (
            None if array is None else self.wrap(cell, array)
            for array in (data.input, data.output)
        )
        shares = partial(_shares, cell, data)
        arguments: dict[str, Callable[[], tuple[Any, ...]]] = {
            "all_reduce": lambda: (output,),
            "broadcast": lambda: (output, 0),
            "reduce": lambda: (output, 0),
            "all_gather_single": lambda: (output, input),
            "all_gather": lambda: (shares(output), input),
            "reduce_scatter_single": lambda: (output, input),
            "reduce_scatter": lambda: (output, shares(input)),
            "all_to_all_single": lambda: (output, input),
            "all_to_all": lambda: (shares(output), shares(input)),
            "gather": lambda: (input, shares(output), 0),
            "scatter": lambda: (output, shares(input), 0),
            "barrier": tuple,
        }
        return arguments[cell.op]()

    def _ends(self, cell: Cell, data: Data, partner: int) -> tuple[Call, Call]:
        """Return the calls that send to and receive from `partner`."""
        input, output = self._message(cell, data)
        sent, received = (input, partner), (output, partner)
        if cell.mode == "sync":
            return partial(self.dist.send, *sent), partial(self.dist.recv, *received)
        if cell.mode == "persistent":
            return self.find("send_init")(*sent), self.find("recv_init")(*received)
        isend, irecv = self.dist.isend, self.dist.irecv
        return (lambda: isend(*sent).wait()), (lambda: irecv(*received).wait())

    def _both(self, cell: Cell, data: Data, partner: int) -> Call:
        """Return the call that sends to and receives from `partner` at once."""
        input, output = self._message(cell, data)
        if cell.mode == "persistent":
            sent = self.find("send_init")(input, partner)
            received = self.find("recv_init")(output, partner)

            def call() -> None:
                received.start()
                sent.start()
                sent.wait()
                received.wait()

            return call
        if cell.mode == "sync" and hasattr(self.dist, "sendrecv"):
            return partial(self.dist.sendrecv, input, output, partner, partner)
        isend, irecv = self.dist.isend, self.dist.irecv

        def start_and_wait() -> None:
            works = irecv(output, partner), isend(input, partner)
            for work in works:
                work.wait()

        return start_and_wait

    def _message(self, cell: Cell, data: Data) -> tuple[Any, Any]:
        """Return the arrays to send and to receive into."""
        assert data.input is not None
        assert data.output is not None
        return self.wrap(cell, data.input), self.wrap(cell, data.output)


def _shares(cell: Cell, data: Data, whole: Any) -> Sequence[Any] | None:
    """Return one view of the buffer per rank; None where this rank passes none."""
    if whole is None:
        return None
    return [whole[r * data.share : (r + 1) * data.share] for r in range(cell.ranks)]
