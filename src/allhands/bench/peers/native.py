"""This package as a peer."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

import numpy as np

from allhands.bench.cells import Cell
from allhands.bench.data import Allocate, fresh_zeros
from allhands.bench.fake_hosts import FakeHosts
from allhands.bench.peers.torch_api import TorchApi, as_tensor

__all__ = ["Native"]

_PORT = 29500  # of the launchers; on fake hosts no other program uses it


class Native(TorchApi):
    """A rank of this package, on NumPy arrays, torch tensors or shared arrays."""

    name = "allhands"

    def __init__(self, folder: str, *place: int) -> None:
        import allhands

        self.dist = allhands
        if place:
            rank, size = place
            store = allhands.FileStore(f"{folder}/store", size)
            allhands.init_process_group(store=store, rank=rank, world_size=size)
        else:  # under `allhands run`
            allhands.init_process_group()
        self.rank, self.size = allhands.get_rank(), allhands.get_world_size()

    @classmethod
    def missing(cls) -> str:
        """Return an empty text: this package is always there."""
        return ""

    @classmethod
    def commands(
        cls, size: int, folder: str, hosts: FakeHosts | None = None
    ) -> list[list[str]]:
        """Return one command per rank, or between hosts one launcher per host."""
        if hosts is None:
            return super().commands(size, folder)
        launcher = [
            *(sys.executable, "-m", "allhands.run", f"--nnodes={len(hosts)}"),
            *(f"--master-addr={hosts[0].address}", f"--master-port={_PORT}"),
            f"--nproc-per-node={size // len(hosts)}",
        ]
        ranks = ["--no-python", *cls.worker(folder)]
        return [
            host.enter(*launcher, f"--node-rank={number}", *ranks)
            for number, host in enumerate(hosts.hosts)
        ]

    def versions(self) -> dict[str, str]:
        """See `Peer.versions`."""
        return {name: version(name) for name in ("allhands", "numpy")}

    def allocate(self, cell: Cell) -> Allocate:
        """Allocate in shared memory if the cell says so."""
        return self.find("empty_shared") if cell.arrays == "shared" else fresh_zeros

    def wrap(self, cell: Cell, array: np.ndarray[Any, Any]) -> Any:
        """Return `array` as the kind of array that the cell says."""
        return as_tensor(array) if cell.arrays == "torch" else array

    def close(self) -> None:
        """See `Peer.close`."""
        self.dist.destroy_process_group()
