"""`init_device_mesh`: makes a mesh of a given shape over the whole world."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from allhands.device_mesh.checks import (
    check_device_type,
    check_names,
    check_shape,
    overrides_by_dim,
)
from allhands.device_mesh.mesh import DeviceMesh

__all__ = ["init_device_mesh"]


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Mapping[int | str, Any] | None = None,
) -> DeviceMesh:
    """Make a mesh of this shape with the ranks 0, 1, 2, ... in row-major order.

    Every rank of the world calls it, with the same arguments.

    Args:
        device_type: "cpu", "cuda", ...: the device type of the arrays, without an
            index.
        mesh_shape: the number of ranks along each dimension.
        mesh_dim_names: a name for each dimension.
        backend_override: for a dimension's index or name, the backend of its group, or
            the options for the world's backend, or both as a pair.

    Raises:
        TypeError: `device_type` is no str, or `mesh_shape` no tuple of ints.
        ValueError: a size is not positive.
        RuntimeError: see `DeviceMesh`; or `backend_override` names a dimension that
            does not exist, or names one twice.

    Example:
        ```python
        mesh = dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        dist.all_reduce(gradient, group=mesh.get_group("dp"))
        ```
    """
    check_device_type(device_type)
    shape = check_shape(mesh_shape)
    names = check_names(mesh_dim_names, len(shape))
    overrides = overrides_by_dim(backend_override or {}, names, len(shape))
    ranks = np.arange(math.prod(shape)).reshape(shape)
    return DeviceMesh(
        device_type, ranks, mesh_dim_names=names or None, backend_override=overrides
    )
