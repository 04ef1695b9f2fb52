"""Data-parallel training of a torch module on a group of this package's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from allhands.groups.arguments import Group, member_of
from allhands.torch.world import process_group as lend

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):  # type: ignore[misc]
    """torch's module of that name, whose ranks are those of a group of `allhands`.

    Every rank wraps a module of the same parameters; making it copies those of rank 0
    to all. `backward()` averages the gradients over the ranks, in buckets and while it
    computes, and has done so when it returns: `parameter.grad` has the same bits on
    every rank. What torch can do with such a module it can do with this one
    (`no_sync`, `join`, `register_comm_hook`).

    Args:
        module: of this rank; its parameters are on the CPU.
        device_ids: None for modules on the CPU.
        output_device: the same.
        dim: not used, as in torch.
        broadcast_buffers: whether each forward pass copies rank 0's buffers to all.
        process_group: a group of `allhands`, or of torch; by default all ranks.
        bucket_cap_mb: size of a bucket in MiB.
        find_unused_parameters: whether some parameters may get no gradient in a step.
        check_reduction: not used, as in torch.
        gradient_as_bucket_view: whether gradients lie in the buckets, which spares a
            copy.
        static_graph: whether each step uses the same parameters in the same order.
        **options: what torch's version has beyond these, such as `init_sync`.

    Raises:
        ValueError: no world, or this rank is not in the group.
        RuntimeError: torch has a world of its own; modules differ between ranks.
        RankFailedError: in the forward or backward pass: a rank died.
        DistBackendError: there: one did not come.

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
        if not broadcast_buffers:  # newer versions of torch warn of either value
            options["broadcast_buffers"] = False
        super().__init__(
            module,
            device_ids=device_ids,
            output_device=output_device,
            dim=dim,
            process_group=process_group,
            # torch's own default, which it also is by number, has a small first bucket
            bucket_cap_mb=None if bucket_cap_mb == 25 else bucket_cap_mb,
            find_unused_parameters=find_unused_parameters,
            check_reduction=check_reduction,
            gradient_as_bucket_view=gradient_as_bucket_view,
            static_graph=static_graph,
            **options,
        )
