"""torch.distributed with Gloo."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import numpy as np

from allhands.bench.cells import Cell
from allhands.bench.peers.torch_api import TorchApi, as_tensor

__all__ = ["Gloo"]


class Gloo(TorchApi):
    """A rank of torch's Gloo; it uses tensors, whatever arrays the cell names."""

    name = "gloo"

    def __init__(self, folder: str, *place: int) -> None:
        import torch.distributed

        self.rank, self.size = place[:2]
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.set_num_threads(1)
        self.dist = torch.distributed
        self.dist.init_process_group(
            "gloo", f"file://{folder}/store", rank=self.rank, world_size=self.size
        )

    @classmethod
    def missing(cls) -> str:
        """See `Peer.missing`."""
        if find_spec("torch") is None:
            return "torch is not installed; pip install torch"
        return ""

    def versions(self) -> dict[str, str]:
        """See `Peer.versions`."""
        import torch

        return {"torch": torch.__version__}

    def wrap(self, cell: Cell, array: np.ndarray[Any, Any]) -> Any:
        """Return a tensor, whatever the cell says."""
        return as_tensor(array)

    def close(self) -> None:
        """See `Peer.close`."""
        self.dist.destroy_process_group()
