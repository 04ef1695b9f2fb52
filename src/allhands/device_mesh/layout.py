"""Layout: the places of a grid over which a dimension of a mesh runs.

The ranks of a grid are numbered by their *places*, row by row. A layout is a tuple of
runs, the outermost first. Each run has a number of places and their distance: `(Run(8,
1),)` is a row of eight, and `(Run(2, 4), Run(2, 1))` goes 0, 1, 4, 5. Every layout is
cut or joined from the axes of one grid, so the index in a run of n places at distance d
is `place // d % n`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Layout",
    "Run",
    "axes_of",
    "cut",
    "is_ascending",
    "joined",
    "overlap",
    "places",
    "position",
    "size_of",
]


class Run(NamedTuple):
    """Places at equal distances."""

    size: int
    stride: int


Layout: TypeAlias = tuple[Run, ...]


def axes_of(shape: Sequence[int]) -> list[Layout]:
    """Return the layouts of the axes of a grid."""
    strides = (math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return [(Run(*run),) for run in zip(shape, strides, strict=True)]


def size_of(layout: Layout) -> int:
    """Return the number of places of the layout."""
    return math.prod(run.size for run in layout)


def places(layouts: Iterable[Layout]) -> npt.NDArray[np.int64]:
    """Return all places of several layouts, with one axis for each, from place 0 on."""
    found: Any = np.zeros((), np.int64)
    for layout in layouts:
        outer = found[..., np.newaxis]
        for run in layout:
            steps = np.arange(run.size) * run.stride
            outer = (outer[..., np.newaxis] + steps).reshape(*found.shape, -1)
        found = outer
    return found  # type: ignore[no-any-return]


def position(layout: Layout, place: int) -> int:
    """Return the index along `layout` of the rank at `place`."""
    index = 0
    for size, stride in layout:
        index = index * size + place // stride % size
    return index


def joined(layouts: Iterable[Layout]) -> Layout:
    """Return one layout that runs over several, the last one fastest."""
    runs: list[Run] = []
    for run in (run for layout in layouts for run in layout):
        if runs and run.size == 1:
            continue
        if runs and runs[-1].size == 1:
            runs.pop()
        if runs and runs[-1].stride == run.size * run.stride:
            run = Run(runs.pop().size * run.size, run.stride)
        runs.append(run)
    return tuple(runs)


def cut(layout: Layout, sizes: Sequence[int]) -> list[Layout] | None:
    """Return layouts of these sizes over which `layout` runs, the last one fastest.

    Returns None if there are none, because a part would end within a run without
    dividing it.
    """
    left = list(layout)
    span = left[-1].stride  # of the part that has been cut off
    parts: list[Layout] = []
    for size in reversed(sizes):
        part: list[Run] = []
        while size > 1:
            run = left.pop()
            taken = math.gcd(size, run.size)
            if taken < min(size, run.size):
                return None
            if taken > 1:
                part.insert(0, Run(taken, run.stride))
            if taken < run.size:
                left.append(Run(run.size // taken, run.stride * taken))
            size //= taken
            span = run.stride * taken
        parts.insert(0, tuple(part) or (Run(1, span),))
    return parts


def overlap(layouts: Iterable[Layout]) -> bool:
    """Return whether two of the layouts have more than one place in common."""
    runs = sorted(
        (run for layout in layouts for run in layout if run.size > 1),
        key=lambda run: run.stride,
    )
    return any(
        outer.stride % (inner.size * inner.stride)
        for inner, outer in itertools.pairwise(runs)
    )


def is_ascending(layouts: Iterable[Layout]) -> bool:
    """Return whether they are in the order of the grid's axes, the outermost first.

    An axis with one place may stand anywhere.
    """
    strides = [run.stride for layout in layouts for run in layout if run.size > 1]
    return strides == sorted(strides, reverse=True)
