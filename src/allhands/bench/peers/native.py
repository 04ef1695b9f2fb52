"""This package."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from allhands.bench.cells import Cell
from allhands.bench.data import Allocate, fresh_zeros
from allhands.bench.peers.torch_api import TorchApi, as_tensor

__all__ = ["Native"]


class Native(TorchApi):
    """A rank of ours, on NumPy arrays, torch tensors or shared arrays."""

    name = "allhands"

    def __init__(self, folder: str, *place: int) -> None:
        import allhands

        self.dist = allhands
        self.rank, self.size = place
        store = allhands.FileStore(f"{folder}/store", self.size)
        allhands.init_process_group(store=store, rank=self.rank, world_size=self.size)

    @classmethod
    def missing(cls) -> str:
        """Never: it is this package."""
        return ""

    def versions(self) -> dict[str, str]:
        """See `Peer.versions`."""
        return {name: version(name) for name in ("allhands", "numpy")}

    def allocate(self, cell: Cell) -> Allocate:
        """In shared memory, where the cell says so."""
        return self.find("empty_shared") if cell.arrays == "shared" else fresh_zeros

    def wrap(self, cell: Cell, array: np.ndarray[Any, Any]) -> Any:
        """As the cell says."""
        return as_tensor(array) if cell.arrays == "torch" else array

    def close(self) -> None:
        """See `Peer.close`."""
        self.dist.destroy_process_group()
