"""What trains on torch.distributed: with our backend as with Gloo."""

import pytest

from harness.torch_jobs import TRAINING, check_as_gloo

pytest.importorskip("torch")


@pytest.mark.parametrize("size", [2, 4])
def test_ddp(tmp_path, size):
    check_as_gloo(
        tmp_path,
        size,
        TRAINING
        + """
def body(backend):
    given = []
    for options in (
        {},
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"gradient_as_bucket_view": True},
        {"bucket_cap_mb": 0.0001},
    ):
        for overlaps in (False, True):
            if backend == "allhands":
                dist.group.WORLD._overlaps = overlaps
            module = model()
            train(DDP(module, **options))
            given.append(weights(module))
    module = model()
    ddp = DDP(module)
    with ddp.no_sync():
        ddp(torch.ones(5, 8) * rank).sum().backward()
    train(ddp)
    given.append(weights(module))
    return given
""",
        tolerance=0 if size == 2 else 1e-6,
    )


def test_ddp_hooks(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        TRAINING
        + """
def body(backend):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    given = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        module = model()
        ddp = DDP(module)
        ddp.register_comm_hook(None, hook)
        train(ddp)
        given.append(weights(module))
    module = model()
    ddp = DDP(module)
    state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(ddp)
    given.append(weights(module))
    return given
""",
    )


def test_ddp_with_uneven_inputs(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        TRAINING
        + """
def body(backend):
    from torch.distributed.algorithms.join import Join
    module = model()
    ddp = DDP(module)
    with Join([ddp]):
        train(ddp, steps=2 + rank)
    return weights(module)
""",
    )


def test_sharded(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        TRAINING
        + """
def body(backend):
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    given = []
    mesh = init_device_mesh("cpu", (size,))
    module = model()
    fully_shard(module, mesh=mesh)
    train(module)
    given.append([p.full_tensor().tolist() for p in module.parameters()])
    x = distribute_tensor(torch.arange(6.0).reshape(3, 2), mesh, [Shard(0)])
    given.append(x.redistribute(mesh, [Shard(1)]).to_local().tolist())
    given.append(x.redistribute(mesh, [Replicate()]).to_local().tolist())
    module = parallelize_module(
        model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.manual_seed(3)
    given.append(module(torch.randn(5, 8)).tolist())
    module = model()
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    train(DDP(module), optimizer)
    given.append(weights(module))
    return given
""",
    )


def test_checkpoints(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        TRAINING
        + """
def body(backend):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (size,))
    module = model()
    fully_shard(module, mesh=mesh)
    train(module)
    path = f"{folder}/saved-{backend}"
    checkpoint.save({"model": module.state_dict()}, checkpoint_id=path)
    other = model()
    fully_shard(other, mesh=mesh)
    state = {"model": other.state_dict()}
    checkpoint.load(state, checkpoint_id=path)
    other.load_state_dict(state["model"])
    return [p.full_tensor().tolist() for p in other.parameters()]
""",
    )


def test_older_sharding_and_pipelines(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        TRAINING
        + """
def body(backend):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    given = []
    module = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    train(module)
    with FullyShardedDataParallel.summon_full_params(module):
        given.append(weights(module))
    torch.manual_seed(rank)
    part = nn.Linear(4, 4)
    stage = PipelineStage(part, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda x, y: (x - y).square().mean())
    if rank == 0:
        schedule.step(torch.ones(4, 4))
    else:
        schedule.step(target=torch.zeros(4, 4))
    given.append([p.grad.tolist() for p in part.parameters()])
    return given
""",
    )
