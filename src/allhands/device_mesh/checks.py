"""Checks of the arguments for making a mesh or a part of one."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from allhands.device_mesh.grid import Dim, Grid, Override, integers
from allhands.device_mesh.layout import is_ascending, overlap
from allhands.groups.making import check_members, check_of_world
from allhands.groups.process_group import ProcessGroup
from allhands.groups.queries import get_process_group_ranks, get_rank, get_world_size
from allhands.groups.world import current

__all__ = [
    "check_apart",
    "check_device_type",
    "check_is_alive",
    "check_is_inside",
    "check_is_line",
    "check_lines",
    "check_names",
    "check_new_name",
    "check_parts",
    "check_ranks",
    "check_same_grid",
    "check_shape",
    "check_slice",
    "dim_named",
    "dims_named",
    "groups_and_mesh",
    "index_of",
    "index_to_cut",
    "one_override",
    "overrides_by_dim",
]


def check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of a mesh as a tuple of ints.

    Raises:
        TypeError: it is no tuple, or holds something else than ints.
        ValueError: a size is not positive.
    """
    if not isinstance(shape, Sequence | np.ndarray) or isinstance(shape, str):
        one = f"; for one dimension pass ({shape},)" if isinstance(shape, int) else ""
        raise TypeError(f"mesh_shape must be a tuple of ints, got {shape!r}{one}")
    if not all(hasattr(size, "__index__") for size in shape):
        raise TypeError(f"mesh_shape must be a tuple of ints, got {shape!r}")
    sizes = tuple(operator.index(size) for size in shape)
    if any(size < 1 for size in sizes):
        raise ValueError(f"mesh_shape must have positive sizes, got {sizes}")
    return sizes


def check_names(names: Sequence[str] | None, ndim: int) -> tuple[str, ...]:
    """Return the names as a tuple, empty without names."""
    if names is None:
        return ()
    unique = (names,) if isinstance(names, str) else tuple(names)
    if len(set(unique)) != len(unique):
        raise RuntimeError(
            f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in "
            f"mesh_dim_names {unique}"
        )
    if len(unique) != ndim:
        raise RuntimeError(
            f"mesh_shape and mesh_dim_names should have same length! Found "
            f"len(mesh_dim_names): {len(unique)} and len(mesh_shape):{ndim}."
        )
    return unique


def check_new_name(name: str, names: tuple[str, ...], mesh: object) -> None:
    """Refuse a name for flattened dimensions that is one of the `names` of `mesh`.

    Raises:
        ValueError: the name is one of them.
    """
    if name in names:
        raise ValueError(
            f"{name} already exists for submesh of the {mesh}. The mesh_dim_names of "
            f"submesh and flattened mesh are {names}. Please specify another valid "
            f"mesh_dim_name."
        )


def check_is_line(ndim: int) -> None:
    """Refuse to choose among several dimensions.

    Raises:
        RuntimeError: the number of dimensions is not 1.
    """
    if ndim != 1:
        raise RuntimeError(
            f"Found the DeviceMesh have {ndim} dimensions. Optional kwarg `mesh_dim` "
            f"needs to be specified when device_mesh.ndim > 1. If you want to get the "
            f"list of all the ProcessGroups in the DeviceMesh, please use "
            f"`get_all_groups()` instead."
        )


def check_is_alive(group: ProcessGroup) -> None:
    """Refuse a mesh's group that was destroyed, or whose world was.

    Raises:
        RuntimeError: it is no group of this rank any more.
    """
    if current().groups.get(group.group_name) is not group:
        raise RuntimeError(
            f"Could not resolve the process group registered under the name "
            f"{group.group_name}: the mesh's group was destroyed; make a new mesh"
        )


def check_is_inside(grid: Grid, mesh: Any) -> None:
    """Refuse an operation that only a rank of `mesh`, on `grid`, can do.

    Raises:
        RuntimeError: this rank is not in the mesh.
    """
    if grid.place is None:
        raise RuntimeError(
            f"rank {get_rank()} (this process) is not in {mesh}, which has the ranks "
            f"{mesh.mesh.tolist()}"
        )


def check_parts(
    sizes: Sequence[int], names: Sequence[str], size: int, dim: int
) -> None:
    """Refuse sizes and names of parts that do not fit the dimension with index `dim`.

    Raises:
        RuntimeError: there is not one name per size.
        ValueError: the product of the sizes is not `size`.
    """
    if len(sizes) != len(names):
        raise RuntimeError(
            f"mesh_dim_names must have same length as mesh_sizes in unflatten: got "
            f"{tuple(names)} for {tuple(sizes)}"
        )
    if math.prod(sizes) != size or min(sizes) < 1:
        raise ValueError(
            f"The product of mesh_sizes={tuple(sizes)} is {math.prod(sizes)}, but the "
            f"original dimension at dim={dim} has size {size}. These must be equal for "
            f"unflatten to work correctly."
        )


def check_device_type(device_type: str) -> None:
    """Refuse the name of a single device.

    Raises:
        RuntimeError: the name has an index, like "cuda:0".
        TypeError: it is no str.
    """
    if not isinstance(device_type, str):
        raise TypeError(f'device_type must be a str such as "cpu", got {device_type!r}')
    if ":" in device_type:
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. If you "
            f"maintained a 'torch.device' object, it's recommended to pass in "
            f"'device.type'."
        )


def check_ranks(ranks: npt.NDArray[np.int32]) -> None:
    """Refuse ranks that the world does not have.

    Raises:
        RuntimeError: there are more ranks than the world has.
        ValueError: a rank is out of range or is given twice.
    """
    size = get_world_size()
    if ranks.size > size:
        raise RuntimeError(
            f"Mesh should not be bigger than default world size {size}, but found "
            f"{ranks.size} ranks!"
        )
    check_members(ranks.ravel().tolist(), size, sort=False)


def overrides_by_dim(
    by_dim: Mapping[int | str, Any], names: tuple[str, ...], ndim: int
) -> list[Override]:
    """Return backend and options for each dimension."""
    left = dict(by_dim)
    found: list[Override] = []
    for axis in range(ndim):
        name = names[axis] if names else None
        if axis in left and name in left:
            raise RuntimeError(
                f"Found redundant dim index {axis} and name {name} in backend_override"
            )
        key: Any = axis if axis in left else name
        found.append(one_override(left.pop(key, None)))
    if left:
        raise RuntimeError(
            f"Found invalid keys in backend_override: got {list(left)}, expected "
            f"integers in range [0, {ndim}) or one of {names}"
        )
    return found


def one_override(value: Any) -> Override:
    """Return the backend and options in `value`, which may have one or both."""
    if isinstance(value, tuple):
        backend, options = value
        return backend, options
    return (value, None) if isinstance(value, str) else (None, value)


def _check_complete(groups: list[ProcessGroup], mesh: Any, names: Any) -> None:
    """Refuse a list of groups without a description of their places.

    Raises:
        ValueError: the mesh or the names are missing or do not fit.
    """
    if not groups:
        raise ValueError("Expects at least one ProcessGroup to be passed")
    if mesh is None:
        raise ValueError("Must pass mesh if passing multiple ProcessGroups")
    if names is None:
        raise ValueError("Must pass mesh_dim_names if passing multiple ProcessGroups")
    if integers(mesh).ndim != len(groups):
        raise ValueError(
            f"Expects mesh with ndim equal to number of ProcessGroups but got mesh "
            f"{integers(mesh).tolist()} and {len(groups)} ProcessGroups"
        )


def groups_and_mesh(group: Any, mesh: Any, names: Any) -> tuple[list[Any], Any]:
    """Return the groups of a mesh, one per dimension, and its ranks.

    Raises:
        ValueError: `mesh` differs from the ranks of a single group; or the places of a
            list of groups are not described.
    """
    groups = [group] if isinstance(group, ProcessGroup) else list(group)
    for member in groups:
        check_of_world("DeviceMesh.from_group", member)
    if not isinstance(group, ProcessGroup):
        _check_complete(groups, mesh, names)
        return groups, mesh
    ranks = get_process_group_ranks(group)
    if mesh is not None and integers(mesh).tolist() != ranks:
        raise ValueError(f"Invalid mesh {mesh} for ProcessGroup with ranks {ranks}")
    return groups, ranks if mesh is None else mesh


def check_lines(grid: Grid, groups: list[ProcessGroup]) -> None:
    """Refuse groups whose ranks differ from this rank's lines on the grid.

    Raises:
        ValueError: the ranks of a group differ.
    """
    for axis, (layout, group) in enumerate(zip(grid.axes, groups, strict=True)):
        line, ranks = (
            grid.ranks_along([layout]).tolist(),
            get_process_group_ranks(group),
        )
        if sorted(line) != sorted(ranks):
            raise ValueError(
                f"Invalid mesh: along dimension {axis} it has ranks {line}, but the "
                f"ProcessGroup has {ranks}"
            )


def dim_named(name: str, by_name: Mapping[str, Dim]) -> Dim:
    """Return the dimension with this name.

    Raises:
        KeyError: there is none.
    """
    if not by_name:
        raise KeyError(f"No `mesh_dim_names` found. There is no dimension {name!r}")
    if name not in by_name:
        raise KeyError(
            f"Mesh dimension {name!r} does not exist. Available mesh dimensions are: "
            f"mesh_dim_names={tuple(by_name)}"
        )
    return by_name[name]


def check_slice(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names by which a program takes a slice of a mesh, as a tuple.

    Raises:
        TypeError: they are no names.
    """
    named = (names,) if isinstance(names, str) else names
    if isinstance(named, Sequence) and all(isinstance(name, str) for name in named):
        return tuple(named)
    raise TypeError(
        f"a DeviceMesh is sliced by the names of its dimensions, such as mesh['dp'], "
        f"got {names!r}"
    )


def dims_named(names: tuple[str, ...], by_name: Mapping[str, Dim]) -> list[Dim]:
    """Return the dimensions with these names, disjoint and in the grid's order.

    Raises:
        KeyError: there is no such dimension, or the order differs.
        RuntimeError: they overlap.
    """
    if not set(names) <= set(by_name):
        raise KeyError(
            f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are "
            f"{list(by_name)}."
        )
    dims = [by_name[name] for name in names]
    layouts = [dim.layout for dim in dims]
    if not is_ascending(layouts):
        raise KeyError(
            f"Invalid mesh_dim_names {names} specified. Mesh dim indices should be "
            f"in ascending order."
        )
    if len(set(names)) < len(names) or overlap(layouts):
        raise RuntimeError(f"Slicing overlapping dim_names {names} is not allowed.")
    return dims


def check_apart(dims: Sequence[Dim], meshes: Sequence[object]) -> None:
    """Refuse dimensions of `meshes` that overlap.

    Raises:
        RuntimeError: two dimensions overlap.
    """
    if overlap(dim.layout for dim in dims):
        raise RuntimeError(f"Cannot concatenate overlapping meshes: {[*meshes]}")


def check_same_grid(grids: Sequence[Grid]) -> None:
    """Refuse an empty list, or grids with different ranks.

    Raises:
        ValueError: there is no grid.
        RuntimeError: the ranks or their places differ.
    """
    if not grids:
        raise ValueError("Cannot concatenate an empty list of DeviceMeshes")
    for grid in grids:
        if not grid.is_over_the_same(grids[0]):
            raise RuntimeError(
                f"Cannot concatenate DeviceMeshes derived from different device meshs: "
                f"one has the ranks {grids[0].ranks}, another {grid.ranks}"
            )


def index_to_cut(dim: int | str, names: tuple[str, ...], ndim: int) -> int:
    """Return the index of the dimension that `unflatten` cuts.

    Raises:
        ValueError: there is no such dimension.
    """
    if isinstance(dim, str) and dim not in names:
        raise ValueError(f"dim {dim} specified in `_unflatten` is not in {names}")
    try:
        return index_of(dim, names, ndim)
    except IndexError as error:
        raise ValueError(
            f"dim {dim} specified in `_unflatten` is out of range {ndim}"
        ) from error


def index_of(key: int | str, names: tuple[str, ...], ndim: int) -> int:
    """Return the index of a dimension, given by index or by one of the `names`.

    Raises:
        IndexError: there is no dimension with this index.
    """
    if isinstance(key, str):
        return names.index(key)
    if not -ndim <= key < ndim:
        raise IndexError(f"mesh_dim must be in [{-ndim}, {ndim}), got {key}")
    return key % ndim
