"""One rank of `allhands bench --torch`: steps of training on Gloo and on our engine.

    python -m allhands.bench.training_worker FILE ROUNDS

Both engines run in one program and take turns, so that other load on the machine
affects both. Rank 0 writes the figures to FILE.
"""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

__all__ = ["main"]

_BLOCK_S = 0.1  # of steps or calls in a row
_MOST = 1000  # steps or calls in a block
_WARM_UP = 3

Call = Callable[[], Any]


def _perceptron() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, 1800)), torch.randn(8, 1024)


def _convolutions() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
    end = [nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(4096, 40)]
    return nn.Sequential(*layers, *end), torch.randn(8, 3, 24, 24)


def _transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    return nn.TransformerEncoder(layer, 6), torch.randn(8, 16, 128)


_MODELS = {
    "perceptron": _perceptron,
    "convolutions": _convolutions,
    "transformer": _transformer,
}


def _step(model: nn.Module, inputs: torch.Tensor) -> Call:
    def step() -> None:
        model.zero_grad()
        model(inputs).square().mean().backward()

    return step


def _alone(model: Any) -> nn.Module:
    module: nn.Module = model()[0]
    return module


def _data_parallel(model: Any, group: Any, is_silent: bool = False) -> nn.Module:
    """Return the model in DDP; a silent DDP leaves the gradients as they are."""
    module = DistributedDataParallel(_alone(model), process_group=group)
    if is_silent:
        module.register_comm_hook(None, _leave)
    return module


def _leave(
    _: object,
    bucket: dist.GradBucket,  # torch checks these annotations
) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _sharded(model: Any, group: Any) -> nn.Module:
    module = _alone(model)
    mesh = DeviceMesh.from_group(group, "cpu")
    layers: Any = getattr(module, "layers", module)
    for part in layers:
        if any(True for _ in part.parameters()):
            fully_shard(part, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def _training(name: str, gloo: Any, ours: Any) -> dict[str, dict[str, Call]]:
    """Return the calls to measure of a model, by row and by column."""
    model = _MODELS[name]
    inputs = model()[1]
    alone = _step(_alone(model), inputs)
    ddp = {
        "alone": alone,
        "silent": _step(_data_parallel(model, gloo, True), inputs),
        "gloo": _step(_data_parallel(model, gloo), inputs),
        "allhands": _step(_data_parallel(model, ours), inputs),
    }
    sharded = {
        "alone": alone,
        "gloo": _step(_sharded(model, gloo), inputs),
        "allhands": _step(_sharded(model, ours), inputs),
    }
    return {f"DDP, {name}": ddp, f"FSDP2, {name}": sharded}


def _operations(gloo: Any, ours: Any) -> dict[str, dict[str, Call]]:
    def all_reduce(count: int) -> dict[str, Call]:
        array = torch.zeros(count)
        return {
            "gloo": lambda: dist.all_reduce(array, group=gloo),
            "allhands": lambda: dist.all_reduce(array, group=ours),
        }

    return {"all_reduce, 8 B": all_reduce(2), "all_reduce, 1 MiB": all_reduce(1 << 18)}


def _block(call: Call, count: int, group: Any) -> float:
    """Return the seconds per call on this rank."""
    dist.barrier(group=group)
    start = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - start) / count


def _count(call: Call, group: Any) -> int:
    """Return how many calls make a block, the same on all ranks; warm up the ranks."""
    seconds = torch.tensor(_block(call, _WARM_UP, group))
    dist.broadcast(seconds, 0, group=group)
    return min(max(int(_BLOCK_S / seconds.item()), 1), _MOST)


def _measure(calls: dict[str, Call], rounds: int, group: Any) -> dict[str, list[float]]:
    """Return the seconds of each call on its slowest rank, round by round."""
    names = list(calls)
    counts = {name: _count(calls[name], group) for name in names}
    seconds = torch.zeros(rounds, len(names), dtype=torch.float64)
    for turn in range(rounds):
        for index in range(len(names)):
            column = (turn + index) % len(names)
            name = names[column]
            seconds[turn, column] = _block(calls[name], counts[name], group)
    dist.all_reduce(seconds, dist.ReduceOp.MAX, group=group)
    return {name: seconds[:, column].tolist() for column, name in enumerate(names)}


def main(path: str, rounds: str) -> None:
    """Be a rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gloo, ours = dist.group.WORLD, dist.new_group(backend="allhands")
    rows = []

    def note(measured: dict[str, dict[str, Call]]) -> None:
        for name, calls in measured.items():
            rows.append({"name": name, **_measure(calls, int(rounds), ours)})
            gc.collect()

    gc.disable()  # a collection would slow down one step of one engine
    note(_operations(gloo, ours))
    for name in _MODELS:
        note(_training(name, gloo, ours))
    if dist.get_rank() == 0:
        record = {"torch": torch.__version__, "rows": rows}
        Path(path).write_text(json.dumps(record))
    dist.barrier(group=ours)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
