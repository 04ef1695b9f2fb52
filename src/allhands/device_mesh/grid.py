"""Grid: what a device mesh and those cut out of it share, and its dimensions.

The ranks on an n-dimensional grid, and where this rank stands on it. A dimension of a
mesh runs over one of the grid's axes, over a part of one, or over several that were
flattened into one. Dimensions are for one thread at a time to make; the rest never
changes.
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
"""The backend of a dimension's group, None for that of the world; its options."""


class Dim(NamedTuple):
    """A dimension of a mesh: where on the grid it runs, and its group."""

    layout: Layout
    group: ProcessGroup | None
    """None where this rank is not in the mesh, or groups were not asked for."""


class Grid:
    """What a mesh and those cut out of it share: the ranks, and where this one is."""

    def __init__(self, device_type: str, mesh: Any, rank: int) -> None:
        self.device_type = device_type
        self._empty = _library_of(mesh).from_numpy(np.empty(0))
        ranks = integers(mesh)
        self.axes = axes_of(ranks.shape)
        self.ranks = ranks.ravel()
        """By place."""
        self.flattened: dict[str, Dim] = {}
        found = np.flatnonzero(self.ranks == rank).tolist()
        self.place: int | None = found[0] if found else None

    @property
    def library(self) -> Library:
        """Whose arrays `DeviceMesh.mesh` is made of: of those it was made of."""
        return library_of(self._empty)

    def is_over_the_same(self, other: Grid) -> bool:
        """Whether every place has the same rank as in `other`."""
        return self is other or np.array_equal(self.ranks, other.ranks)

    def ranks_along(self, layouts: Sequence[Layout]) -> npt.NDArray[np.int32]:
        """The ranks along these layouts that go through this rank.

        Through the first one on a rank that is not on the grid.
        """
        along = places(layouts)
        here = self.place or 0
        mine = along[tuple(position(layout, here) for layout in layouts)]
        picked: npt.NDArray[np.int32] = self.ranks[along + (here - mine)]
        return picked

    def shifted(
        self, layout: Layout, here: int, displacement: int, periodic: bool
    ) -> tuple[int, int]:
        """Along `layout` the rank from which things come to `here`, and where they go.

        `PROC_NULL` where there is none; this rank is at the place `here`.

        Raises:
            TypeError: `displacement` is no int.
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
        """The flattened dimensions that run over nothing but these."""
        here = places(layouts)
        return {
            name: dim
            for name, dim in self.flattened.items()
            if np.isin(places([dim.layout]), here).all()
        }

    def make_dim(self, layout: Layout, name: str, override: Override) -> Dim:
        """The dimension along `layout`, with its group or the default one."""
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
