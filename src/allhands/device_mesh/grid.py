"""Grid: what a device mesh and those cut out of it share, and its dimensions.

The ranks on an n-dimensional grid of axes, and where this rank stands on it. A
dimension of a mesh runs over one axis, or over several that were flattened into one.
Dimensions are for one thread at a time to make; the rest never changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from allhands.arrays import Library, library_of
from allhands.groups.lifetime import new_group
from allhands.groups.making import check_members
from allhands.groups.process_group import ProcessGroup
from allhands.groups.queries import get_process_group_ranks, get_world_size
from allhands.groups.world import default_group

__all__ = [
    "Dim",
    "Grid",
    "Override",
    "check_complete",
    "check_device_type",
    "check_lines",
    "check_names",
    "check_parts",
    "check_ranks",
    "integers",
    "mesh_of",
    "one_override",
    "overrides_by_dim",
]

Override: TypeAlias = "tuple[str | None, Any]"
"""The backend of a dimension's group, None for that of the world; its options."""


class Dim(NamedTuple):
    """A dimension of a mesh: the grid's axes that it runs over, and its group."""

    axes: tuple[int, ...]
    group: ProcessGroup | None
    """None where this rank is not in the mesh, or groups were not asked for."""


class Grid:
    """What a mesh and those cut out of it share: the ranks, and where this one is."""

    def __init__(self, device_type: str, mesh: Any, rank: int) -> None:
        self.device_type = device_type
        self._empty = _library_of(mesh).from_numpy(np.empty(0))
        self.ranks = integers(mesh)
        self.flattened: dict[str, Dim] = {}
        found = np.argwhere(self.ranks == rank).tolist()
        self.coordinate: tuple[int, ...] | None = tuple(found[0]) if found else None

    @property
    def library(self) -> Library:
        """Whose arrays `DeviceMesh.mesh` is made of: of those it was made of."""
        return library_of(self._empty)

    def over(self, axes: Sequence[int]) -> npt.NDArray[np.int32]:
        """The ranks along `axes`, in ascending order, that go through this one.

        Through the first one on a rank that is not on the grid.
        """
        here = self.coordinate or (0,) * self.ranks.ndim
        along = (slice(None) if a in axes else at for a, at in enumerate(here))
        picked: npt.NDArray[np.int32] = self.ranks[tuple(along)]
        return picked

    def size(self, dim: Dim) -> int:
        """The number of ranks along `dim`."""
        return math.prod(self.ranks.shape[axis] for axis in dim.axes)

    def stride(self, dim: Dim) -> int | tuple[int, ...]:
        """How far apart its neighbours stand among all ranks; one number per run."""
        last = [axis for axis in dim.axes if axis + 1 not in dim.axes]
        strides = tuple(math.prod(self.ranks.shape[axis + 1 :]) for axis in last)
        return strides[0] if len(strides) == 1 else strides

    def make_dim(self, axes: tuple[int, ...], name: str, override: Override) -> Dim:
        """The dimension along `axes` with its group; the default one where it fits."""
        if self.coordinate is None:
            return Dim(axes, None)
        ranks = self.over(axes).ravel().tolist()
        whole = default_group()
        if override == (None, None) and ranks == list(range(whole.size())):
            return Dim(axes, whole)
        backend, options = override
        group = new_group(
            ranks,
            backend=backend,
            pg_options=options,
            use_local_synchronization=True,
            group_desc=f"mesh_{name}",
            sort_ranks=False,
        )
        assert isinstance(group, ProcessGroup), "this rank is on each of its lines"
        return Dim(axes, group)


def _library_of(mesh: Any) -> Library:
    """NumPy for nested lists."""
    is_plain = isinstance(mesh, (int, Sequence))
    return library_of(np.empty(0) if is_plain else mesh, "mesh")


def integers(mesh: Any) -> npt.NDArray[np.int32]:
    """The ranks that a user's array or nested list holds.

    Raises:
        TypeError: it holds something else.
    """
    ranks = np.asarray(mesh)
    if ranks.dtype.kind not in "iu":
        raise TypeError(f"mesh must hold integers, got {ranks.dtype}: {mesh}")
    return ranks.astype(np.int32)


def check_names(names: Sequence[str] | None, ndim: int) -> tuple[str, ...]:
    """The names as a tuple, empty where there are none."""
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


def check_parts(
    sizes: Sequence[int], names: Sequence[str], size: int, what: str
) -> None:
    """Refuse sizes and names of the parts of a dimension, `what`, that do not fit it.

    Raises:
        RuntimeError: not one name per size.
        ValueError: the sizes do not multiply to `size`.
    """
    if len(sizes) != len(names):
        raise RuntimeError(
            f"mesh_dim_names must have same length as mesh_sizes in unflatten: got "
            f"{tuple(names)} for {tuple(sizes)}"
        )
    if math.prod(sizes) != size or min(sizes) < 1:
        raise ValueError(
            f"The product of mesh_sizes={tuple(sizes)} is {math.prod(sizes)}, but the "
            f"original dimension {what} has size {size}; they must be equal"
        )


def check_device_type(device_type: str) -> None:
    """Refuse the name of a single device.

    Raises:
        RuntimeError: it is one, like "cuda:0".
    """
    if ":" in device_type:
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. If you "
            f"maintained a 'torch.device' object, it's recommended to pass in "
            f"'device.type'."
        )


def check_ranks(ranks: npt.NDArray[np.int32]) -> None:
    """Refuse ranks that the world does not have.

    Raises:
        RuntimeError: there are more of them than the world has.
        ValueError: one is out of range or comes twice.
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
    """For each dimension its backend and options."""
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
    """A backend's name, its options, or both."""
    if isinstance(value, tuple):
        backend, options = value
        return backend, options
    return (value, None) if isinstance(value, str) else (None, value)


def check_complete(groups: list[ProcessGroup], mesh: Any, names: Any) -> None:
    """Refuse a list of groups that does not say how they lie.

    Raises:
        ValueError: it does not.
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


def mesh_of(group: ProcessGroup, mesh: Any) -> Any:
    """The one-dimensional mesh of `group`, which `mesh` must be where it is given.

    Raises:
        ValueError: it is another.
    """
    ranks = get_process_group_ranks(group)
    if mesh is not None and integers(mesh).tolist() != ranks:
        raise ValueError(f"Invalid mesh {mesh} for ProcessGroup with ranks {ranks}")
    return ranks if mesh is None else mesh


def check_lines(grid: Grid, groups: list[ProcessGroup]) -> None:
    """Refuse groups that have other ranks than this rank's lines on the grid.

    Raises:
        ValueError: one has.
    """
    for axis, group in enumerate(groups):
        line, ranks = grid.over((axis,)).tolist(), get_process_group_ranks(group)
        if sorted(line) != sorted(ranks):
            raise ValueError(
                f"Invalid mesh: along dimension {axis} it has ranks {line}, but the "
                f"ProcessGroup has {ranks}"
            )
