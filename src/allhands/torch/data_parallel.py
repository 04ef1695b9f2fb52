"""Data-parallel training of a torch module on a group of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from allhands.groups.arguments import Group, member_of
from allhands.torch.world import process_group as lend

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):  # type: ignore[misc]
    """torch's module of the same name, on the ranks of a group of `allhands`.

    Every rank wraps a module with the same parameters. The constructor copies the
    parameters of rank 0 to all ranks. `backward()` averages the gradients over the
    ranks, in buckets and while it computes. When it returns, `parameter.grad` has the
    same bits on every rank. Everything that torch does with its own module also works
    with this one (`no_sync`, `join`, `register_comm_hook`).

    Args:
        module: the module of this rank, with parameters on the CPU.
        device_ids: None for modules on the CPU.
        output_device: None for modules on the CPU.
        dim: not used, as in torch.
        broadcast_buffers: whether each forward pass copies rank 0's buffers to all.
        process_group: a group of `allhands`, or of torch; by default all ranks.
        bucket_cap_mb: size of a bucket in MiB.
        find_unused_parameters: whether some parameters may get no gradient in a step.
        check_reduction: not used, as in torch.
        gradient_as_bucket_view: whether gradients are views of the buckets, which saves
            a copy.
        static_graph: whether each step uses the same parameters in the same order.
        **options: further parameters of torch's class, such as `init_sync`.

    Raises:
        ValueError: there is no world, or this rank is not in the group.
        RuntimeError: torch has a world of its own; modules differ between ranks.
        RankFailedError: a rank died; the forward or backward pass raises it.
        DistBackendError: a rank did not come; the forward or backward pass raises it.

    Example:
        ```python
        dist.init_process_group()
        model = dist.torch.DistributedDataParallel(torch.nn.Linear(4, 1))
        model(inputs).square().mean().backward()
        ```
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        process_group: Group | torch.distributed.ProcessGroup = None,
        bucket_cap_mb: float = 25,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **options: Any,
    ) -> None:
        is_torchs = isinstance(process_group, torch.distributed.ProcessGroup)
        has_mesh = process_group is None and options.get("device_mesh") is not None
        if not is_torchs and not has_mesh:
            process_group = lend(member_of(process_group))
        if not broadcast_buffers:  # newer versions of torch warn of both values
            options["broadcast_buffers"] = False
        super().__init__(
            module,
            device_ids=device_ids,
            output_device=output_device,
            dim=dim,
            process_group=process_group,
            # None is torch's default, 25 with a small first bucket
            bucket_cap_mb=None if bucket_cap_mb == 25 else bucket_cap_mb,
            find_unused_parameters=find_unused_parameters,
            check_reduction=check_reduction,
            gradient_as_bucket_view=gradient_as_bucket_view,
            static_graph=static_graph,
            **options,
        )
