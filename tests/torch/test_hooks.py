"""Communication hooks of DDP and averagers of models: as on Gloo."""

import textwrap

import pytest

from harness.torch_jobs import TRAINING, TorchJob, check_as_gloo

pytest.importorskip("torch")

_HOOKS = (
    TRAINING
    + """
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks, default_hooks, post_localSGD_hook, powerSGD_hook,
    quantization_hooks)

def trained(module, *arguments, **options):
    train(module, *arguments, **options)
    return weights(module)
"""
)


@pytest.mark.parametrize("size", [2, 4])
def test_hooks_and_averagers(tmp_path, size):
    check_as_gloo(
        tmp_path,
        size,
        _HOOKS
        + """
from torch.distributed.algorithms.model_averaging.averagers import (
    PeriodicModelAverager)
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager)
from torch.distributed.optim import PostLocalSGDOptimizer

def bf16_hook(state, bucket):  # under a name that DDP does not refuse on CPUs
    return default_hooks.bf16_compress_hook(state, bucket)

def hooked(hook, state=None, after=None, **options):
    module = model()
    ddp = DDP(module, **options)
    ddp.register_comm_hook(state, hook)
    return trained(ddp, after=after)

def body(backend):
    halves = [  # of which Gloo rounds each partial sum, where there are more ranks
        hooked(default_hooks.fp16_compress_hook, bucket_cap_mb=0.0001),
        hooked(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
        hooked(bf16_hook),
    ]
    given = [
        *(halves if size == 2 else []),
        hooked(debugging_hooks.noop_hook),
        hooked(powerSGD_hook.powerSGD_hook,
               powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2)),
    ]
    nccl = [default_hooks.bf16_compress_hook]  # on NCCL only, before torch 2.15
    for hook in (*(nccl if size == 2 else []),
                 quantization_hooks.quantization_pertensor_hook,
                 quantization_hooks.quantization_perchannel_hook,
                 powerSGD_hook.batched_powerSGD_hook):  # fails on anything
        state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
        try:
            given.append(hooked(hook, state if "SGD" in hook.__name__ else None))
        except (AssertionError, RuntimeError, TypeError) as error:
            given.append([type(error).__name__, "NCCL" in str(error)])
    pairs, _ = dist.new_subgroups(2)
    state = post_localSGD_hook.PostLocalSGDState(None, pairs, 2)
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    given.append(hooked(post_localSGD_hook.post_localSGD_hook, state,
                        averager.average_parameters))
    module = model()
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(module.parameters(), 0.1),
        PeriodicModelAverager(period=2, warmup_steps=1))
    given.append(trained(module, optimizer))
    if size == 4:
        averager = HierarchicalModelAverager(
            {1: 2, 2: 4}, warmup_steps=1)
        given.append(trained(model(), after=averager.average_parameters))
    return given
""",
        tolerance=0 if size == 2 else 1e-6,
    )


def test_hooks_whose_callbacks_start_operations_with_several_buckets(tmp_path):
    source = """
    init("allhands")
    module = DDP(model(), bucket_cap_mb=0.0001)
    state = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2)
    module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    give(trained(module, steps=20))
    """
    with TorchJob(tmp_path, 2, _HOOKS + textwrap.dedent(source)) as job:
        zero, one = job.join()
    assert zero == one


def test_hooks_of_torchs_own_reducer(tmp_path):
    check_as_gloo(
        tmp_path,
        2,
        _HOOKS
        + """
from torch.distributed.algorithms.join import Join
from torch.distributed import BuiltinCommHookType

def hooked(hook, more_steps=0, **options):
    module = model()
    ddp = DDP(module, **options)
    ddp._register_builtin_comm_hook(hook)
    with Join([ddp]):
        return trained(ddp, steps=3 + more_steps)

def body(backend):
    given = []
    for hook in (BuiltinCommHookType.ALLREDUCE, BuiltinCommHookType.FP16_COMPRESS):
        given += [
            hooked(hook, bucket_cap_mb=0.0001),
            hooked(hook, gradient_as_bucket_view=True),
            hooked(hook, static_graph=True),
            hooked(hook, more_steps=2 * rank),  # rank 0 has joined before
        ]
    return given
""",
    )
