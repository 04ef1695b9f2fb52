"""Grid: the data that a device mesh shares with meshes cut out of it.

A Grid holds the ranks on an n-dimensional grid and the place of this rank. A dimension
of a mesh runs over one axis of the grid, over a part of one, or over several that were
flattened into one. Only one thread at a time may make dimensions. Everything else is
immutable.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from allhands.arrays import Library, library_of
from allhands.device_mesh.layout import Layout, axes_of, places, position
from allhands.groups.lifetime import new_group
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import default_group
from allhands.ops.p2p import PROC_NULL

__all__ = ["Dim", "Grid", "Override", "integers"]

Override: TypeAlias = "tuple[str | None, Any]"
"""The backend of a dimension's group, or None for the world's backend; its options."""


class Dim(NamedTuple):
    """A dimension of a mesh: its layout on the grid, and its group."""

    layout: Layout
    group: ProcessGroup | None
    """None if this rank is not in the mesh, or if the mesh has no groups."""


class Grid:
    """The ranks and this rank's place, shared by a mesh and meshes cut out of it."""

    def __init__(self, device_type: str, mesh: Any, rank: int) -> None:
        self.device_type = device_type
        self._empty = _library_of(mesh).from_numpy(np.empty(0))
        ranks = integers(mesh)
        self.axes = axes_of(ranks.shape)
        self.ranks = ranks.ravel()
        """The ranks by place."""
        self.flattened: dict[str, Any] = {}
        """The meshes that `DeviceMesh.flatten` made, by name."""
        self.root: Any = None
        """The mesh over the whole grid."""
        found = np.flatnonzero(self.ranks == rank).tolist()
        self.place: int | None = found[0] if found else None

    @property
    def library(self) -> Library:
        """The array library of `DeviceMesh.mesh`: that of the original array."""
        return library_of(self._empty)

    def is_over_the_same(self, other: Grid) -> bool:
        """Return whether every place has the same rank as in `other`."""
        return self is other or np.array_equal(self.ranks, other.ranks)

    def ranks_along(self, layouts: Sequence[Layout]) -> npt.NDArray[np.int32]:
        """Return the ranks along these layouts that go through this rank.

        On a rank outside the grid, they go through the first rank.
        """
        along = places(layouts)
        here = self.place or 0
        mine = along[tuple(position(layout, here) for layout in layouts)]
        picked: npt.NDArray[np.int32] = self.ranks[along + (here - mine)]
        return picked

    def shifted(
        self, layout: Layout, here: int, displacement: int, periodic: bool
    ) -> tuple[int, int]:
        """Return the source and the destination of `here` in a shift along `layout`.

        This rank is at the place `here`. A missing rank is `PROC_NULL`.

        Raises:
            TypeError: `displacement` is not an int.
        """
        try:
            distance = operator.index(displacement)
        except TypeError:
            raise TypeError(
                f"shift: displacement must be an int, a number of places, got "
                f"{displacement!r}"
            ) from None
        line = self.ranks_along([layout]).tolist()
        index = position(layout, here)

        def at(other: int) -> int:
            is_there = periodic or 0 <= other < len(line)
            return line[other % len(line)] if is_there else PROC_NULL

        return at(index - distance), at(index + distance)

    def flattened_within(self, layouts: Iterable[Layout]) -> dict[str, Dim]:
        """Return the flattened dimensions that run only over these layouts."""
        here = places(layouts)
        return {
            name: mesh._dims[0]
            for name, mesh in self.flattened.items()
            if np.isin(places([mesh._dims[0].layout]), here).all()
        }

    def make_dim(self, layout: Layout, name: str, override: Override) -> Dim:
        """Return the dimension along `layout`, with a new group or the default one."""
        if self.place is None:
            return Dim(layout, None)
        ranks = self.ranks_along([layout]).tolist()
        whole = default_group()
        if override == (None, None) and ranks == list(range(whole.size())):
            return Dim(layout, whole)
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
        return Dim(layout, group)


def _library_of(mesh: Any) -> Library:
    """Return the array library of `mesh`; NumPy for nested lists."""
    is_plain = isinstance(mesh, (int, Sequence))
    return library_of(np.empty(0) if is_plain else mesh, "mesh")


def integers(mesh: Any) -> npt.NDArray[np.int32]:
    """Return the ranks in a user's array or nested list.

    Raises:
        TypeError: it holds other values.
        ValueError: its lists have different lengths.
    """
    try:
        ranks = np.asarray(mesh)
    except ValueError:
        raise ValueError(
            f"mesh must have as many ranks in each list of a dimension, got {mesh}"
        ) from None
    if ranks.dtype.kind not in "iu":
        raise TypeError(f"mesh must hold integers, got {ranks.dtype}: {mesh}")
    return ranks.astype(np.int32)
