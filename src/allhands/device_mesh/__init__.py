"""DeviceMesh and related functions, at the module path of torch.distributed."""

from __future__ import annotations

from allhands.device_mesh.active import mesh_resources as _mesh_resources  # noqa: F401
from allhands.device_mesh.making import init_device_mesh
from allhands.device_mesh.mesh import DeviceMesh
from allhands.groups.lifetime import init_process_group, new_group
from allhands.groups.process_group import ProcessGroup
from allhands.groups.queries import (
    get_backend,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    is_available,
    is_initialized,
)
from allhands.groups.subgroups import split_group

__all__ = [
    "DeviceMesh",
    "ProcessGroup",
    "get_backend",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "init_device_mesh",
    "init_process_group",
    "is_available",
    "is_initialized",
    "new_group",
    "split_group",
]
