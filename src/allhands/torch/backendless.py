"""Groups without a backend in torch's C++: torch 2.13 takes no backend from Python.

torch calls the methods of such a group, but some of its functions look for the backend
behind the group and find none. This module puts others in front of these functions. For
groups of other backends they call torch's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from allhands.errors import ArgumentError

__all__ = ["serve_without_backend"]

_OPERATIONS = "_c10d_functional"


def serve_without_backend(groups: type[Any], *devices: str) -> None:
    """Let torch's functions serve `groups` as they serve groups with a backend.

    `groups` is a class with the methods of `AllhandsProcessGroup`. Functional
    operations are served for tensors on `devices`.
    """
    library = torch.library.Library(_OPERATIONS, "IMPL")
    _libraries.append(library)
    for operation in (_all_gather_into_tensor_out, _batch_p2p_ops):
        name = operation.__name__.removeprefix("_")
        if not _can_be_replaced(name):
            continue
        for device in devices:
            key = device.upper()
            theirs = torch.library.get_kernel(f"{_OPERATIONS}::{name}", key)
            chosen = _chosen(groups, operation, theirs)
            library.impl(name, chosen, key, with_keyset=True)
    distributed_c10d._set_pg_timeout = _set_timeout_of(groups)


_libraries: list[torch.library.Library] = []  # what they register ends with them


def _can_be_replaced(name: str) -> bool:
    """Return whether this torch has the operation; some older than 2.13 lack it."""
    is_there = hasattr(getattr(torch.ops, _OPERATIONS), name)
    return is_there and hasattr(torch.library, "get_kernel")


def _chosen(
    groups: type[Any], operation: Callable[..., Any], theirs: Any
) -> Callable[..., Any]:
    """Return a kernel: `operation` for `groups`, else `theirs`."""

    def kernel(keys: torch._C.DispatchKeySet, *arguments: Any, **options: Any) -> Any:
        called = arguments[-1]
        by_name = isinstance(called, str)
        group = distributed_c10d._resolve_process_group(called) if by_name else called
        if isinstance(group, groups):
            return operation(group, *arguments, **options)
        return theirs.call_boxed(keys, *arguments, **options)

    return kernel


def _set_timeout_of(groups: type[Any]) -> Callable[..., None]:
    theirs = distributed_c10d._set_pg_timeout

    @functools.wraps(theirs)
    def set_timeout(timeout: timedelta, group: Any = None) -> None:
        of = distributed_c10d._get_default_group() if group is None else group
        if isinstance(of, groups):
            of.set_timeout(timeout)
        else:
            theirs(timeout, group)

    return set_timeout


def _all_gather_into_tensor_out(
    group: Any,
    input: torch.Tensor,
    group_size: int,
    group_name: Any,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    c10d._register_work(out, group.all_gather_single(out, input))
    return out


def _batch_p2p_ops(
    group: Any,
    op_list: Sequence[str],
    peer_list: Sequence[int],
    tag_list: Sequence[int],
    tensors: Sequence[torch.Tensor],
    group_name: str,
) -> list[torch.Tensor]:
    """Return what each receive writes to, and an empty tensor for each send."""
    if not len(op_list) == len(peer_list) == len(tag_list) == len(tensors):
        raise ArgumentError(
            f"batch_p2p_ops: lists must have equal lengths, got {len(op_list)} ops, "
            f"{len(peer_list)} peers, {len(tag_list)} tags, {len(tensors)} tensors"
        )
    if not {*op_list} <= {"isend", "irecv"}:
        raise ArgumentError(
            f"batch_p2p_ops: ops must be 'isend' or 'irecv', got {op_list}"
        )
    outputs = []
    for op, peer, tag, tensor in zip(
        op_list, peer_list, tag_list, tensors, strict=True
    ):
        is_send = op == "isend"
        work = (group.send if is_send else group.recv)([tensor], peer, tag)
        outputs.append(tensor.new_empty(0) if is_send else tensor)
        c10d._register_work(outputs[-1], work)
    return outputs
