"""Programs of torch.distributed, run by several processes."""

from __future__ import annotations

import json
import os
import pathlib
import textwrap

from harness.prepared import PreparedProgram
from harness.ranks import LIMIT

_PRELUDE = """
import json, os, sys, time, warnings
from datetime import timedelta
import torch
import torch.distributed as dist

folder, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
warnings.simplefilter("ignore")  # torch's own, about its own

def init(backend, number=0, timeout=60):
    store = dist.FileStore(f"{folder}/{backend}{number}", size)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size,
        timeout=timedelta(seconds=timeout))

def give(value):
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(value, file)
"""

# For the body of a program that trains: a model, its training, what came of it.
TRAINING = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

def train(module, optimizer=None, after=None, steps=4):
    optimizer = optimizer or torch.optim.SGD(module.parameters(), 0.1)
    for step in range(steps):
        torch.manual_seed(10 * step + rank)
        optimizer.zero_grad()
        module(torch.randn(5, 8)).square().mean().backward()
        optimizer.step()
        if after is not None:
            after(module.parameters())

def weights(module):
    return [p.detach().tolist() for p in module.parameters()]
"""

_BOTH = """
results = []
for backend in ("gloo", "allhands"):
    init(backend)
    results.append(body(backend))
    dist.destroy_process_group()
give(results)
"""


class TorchJob:
    """`size` processes that run `source` after a prelude; use as a context.

    The source finds `dist`, `rank`, `size`, `folder`, `init(backend)` and
    `give(value)`.
    """

    def __init__(self, folder: pathlib.Path, size: int, source: str) -> None:
        self._folder = folder
        program = folder / "program.py"
        program.write_text(_PRELUDE + textwrap.dedent(source))
        self.ranks = [
            PreparedProgram(
                "torch",
                str(program),
                dict(os.environ),
                str(folder),
                str(rank),
                str(size),
            )
            for rank in range(size)
        ]

    def __enter__(self) -> TorchJob:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.ranks:
            process.kill()
            process.wait()
            process.close()

    def join(self, *, dead: tuple[int, ...] = ()) -> list[object]:
        """What the ranks gave, but for the `dead`, once all have ended."""
        outputs = [process.communicate(LIMIT) for process in self.ranks]
        codes = [process.returncode for process in self.ranks]
        alive = [rank for rank in range(len(self.ranks)) if rank not in dead]
        assert not any(codes[rank] for rank in alive), f"{codes}, outputs {outputs}"
        files = [self._folder / f"{rank}.json" for rank in alive]
        return [json.loads(file.read_text()) for file in files]


def check_as_gloo(
    folder: pathlib.Path, size: int, source: str, tolerance: float = 0.0
) -> None:
    """`body(backend)` of `source` gives a list: on every rank what it does on Gloo.

    Numbers may differ by `tolerance`, for sums that Gloo takes in another order.
    """
    with TorchJob(folder, size, textwrap.dedent(source) + _BOTH) as job:
        for rank, (gloo, ours) in enumerate(job.join()):  # type: ignore[misc]
            different = [
                (step, *pair)
                for step, pair in enumerate(zip(gloo, ours, strict=True))
                if not _are_close(*pair, tolerance)
            ]
            assert not different, f"rank {rank}: step, Gloo's, ours: {different}"


def _are_close(one: object, other: object, tolerance: float) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=True)
        return all(_are_close(*pair, tolerance) for pair in pairs)
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= tolerance
    return one == other
