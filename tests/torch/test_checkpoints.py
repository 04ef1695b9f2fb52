"""Checkpoints that another number of ranks reads; sharded models with their options."""

import pytest

from harness.torch_jobs import TorchJob, check_as_gloo

pytest.importorskip("torch")

_MODEL = """
from torch import nn

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 15), nn.ReLU(), nn.Linear(15, 4))

def train(module, optimizer, steps=3):
    for step in range(steps):
        torch.manual_seed(10 * step + rank)
        optimizer.zero_grad()
        module(torch.randn(5, 8)).square().mean().backward()
        optimizer.step()
"""

_SHARDED = (
    _MODEL
    + """
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import (
    get_state_dict, set_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

init("allhands")
mesh = init_device_mesh("cpu", (size,))
module = model()
fully_shard(module, mesh=mesh)
optimizer = torch.optim.Adam(module.parameters(), 0.1)
path = f"{folder}/../saved"

def values():
    moments = [optimizer.state[p]["exp_avg"].full_tensor().tolist()
               for p in module.parameters()]
    return [[p.full_tensor().tolist() for p in module.parameters()], moments]
"""
)


def test_what_two_ranks_save_three_load(tmp_path):
    writers, readers = tmp_path / "writers", tmp_path / "readers"
    writers.mkdir()
    readers.mkdir()
    save = """
train(module, optimizer)
weights, moments = get_state_dict(module, optimizer)
checkpoint.save({"model": weights, "optimizer": moments}, checkpoint_id=path)
give(values())
"""
    load = """
train(module, optimizer, 1)
weights, moments = get_state_dict(module, optimizer)
state = {"model": weights, "optimizer": moments}
checkpoint.load(state, checkpoint_id=path)
set_state_dict(module, optimizer, model_state_dict=state["model"],
               optim_state_dict=state["optimizer"])
give(values())
"""
    with TorchJob(writers, 2, _SHARDED + save) as job:
        saved = job.join()
    with TorchJob(readers, 3, _SHARDED + load) as job:
        assert job.join() == [saved[0]] * 3


def test_sharded_models_with_options(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        _MODEL
        + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload, CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecision,
    MixedPrecisionPolicy, ShardingStrategy, fully_shard)

def full(module):
    with FullyShardedDataParallel.summon_full_params(module):
        return [p.detach().tolist() for p in module.parameters()]

def older(**options):
    module = FullyShardedDataParallel(
        model(), device_id=torch.device("cpu"), **options)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    with module.no_sync():
        module(torch.ones(5, 8) + rank).square().mean().backward()
    module(torch.ones(5, 8) - rank).square().mean().backward()
    optimizer.step()
    train(module, optimizer)
    return full(module)

def newer(**options):
    module = model()
    for part in (module[0], module[2], module):
        fully_shard(part, mesh=init_device_mesh("cpu", (size,)), **options)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    module.set_requires_gradient_sync(False)
    module(torch.ones(5, 8) + rank).square().mean().backward()
    module.set_requires_gradient_sync(True)
    module(torch.ones(5, 8) - rank).square().mean().backward()
    optimizer.step()
    train(module, optimizer)
    return [p.full_tensor().tolist() for p in module.parameters()]

def body(backend):
    half = torch.bfloat16
    given = []
    for make, options in (
        (older, {}),
        (older, {"mixed_precision": MixedPrecision(half, half)}),
        (older, {"cpu_offload": CPUOffload(True)}),
        (older, {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}),
        (older, {"sharding_strategy": ShardingStrategy.NO_SHARD}),
        (newer, {}),
        (newer, {"mp_policy": MixedPrecisionPolicy(half, half)}),
        (newer, {"offload_policy": CPUOffloadPolicy(pin_memory=False)}),
        (newer, {"reshard_after_forward": False}),
    ):
        try:
            given.append(make(**options))
        except (RuntimeError, NotImplementedError, ValueError, AssertionError) as error:
            given.append(f"{make.__name__} {options}: {error!r}")
    return given
""",
        tolerance=1e-6,
    )


@pytest.mark.parametrize("size", [2])
def test_pipelines(tmp_path, size):
    check_as_gloo(
        tmp_path,
        size,
        _MODEL
        + """
from torch.distributed import pipelining

def loss(output, target):
    return (output - target).square().mean()

def run(kind, parts):
    torch.manual_seed(7)
    layers = [nn.Linear(4, 4) for _ in range(size * parts)]
    mine = [layers[rank + size * i] for i in range(parts)]
    stages = [
        pipelining.PipelineStage(
            layer, rank + size * i, size * parts, torch.device("cpu"))
        for i, layer in enumerate(mine)]
    schedule = kind(stages if parts > 1 else stages[0], 4, loss_fn=loss)
    x = torch.arange(32.0).reshape(8, 4)
    for _ in range(2):
        losses = []
        if rank == 0:
            schedule.step(x)
        elif rank == size - 1:
            schedule.step(target=torch.zeros(8, 4), losses=losses)
        else:
            schedule.step()
    return [[p.grad.tolist() for layer in mine for p in layer.parameters()],
            [value.item() for value in losses]]

def body(backend):
    return [
        run(pipelining.Schedule1F1B, 1),
        run(pipelining.ScheduleGPipe, 1),
        run(pipelining.ScheduleInterleaved1F1B, 2),
        run(pipelining.ScheduleLoopedBFS, 2),
        run(pipelining.ScheduleInterleavedZeroBubble, 2),
    ]
""",
    )
