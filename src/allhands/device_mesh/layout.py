"""Layout: at which places of a grid a dimension of a mesh runs.

A grid's ranks are numbered by their *places*, row by row. A layout is a tuple of runs,
the outermost first, each of so many places at such a distance: `(Run(8, 1),)` is a row
of eight, `(Run(2, 4), Run(2, 1))` goes 0, 1, 4, 5. Every layout is cut or joined from
the axes of one grid, so a run of n at distance d is at `place // d % n`.
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
    """The layouts of the axes of a grid."""
    strides = (math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return [(Run(*run),) for run in zip(shape, strides, strict=True)]


def size_of(layout: Layout) -> int:
    """How many places it has."""
    return math.prod(run.size for run in layout)


def places(layouts: Iterable[Layout]) -> npt.NDArray[np.int64]:
    """All places of several layouts together, one axis for each, from place 0 on."""
    found: Any = np.zeros((), np.int64)
    for layout in layouts:
        outer = found[..., np.newaxis]
        for run in layout:
            steps = np.arange(run.size) * run.stride
            outer = (outer[..., np.newaxis] + steps).reshape(*found.shape, -1)
        found = outer
    return found  # type: ignore[no-any-return]


def position(layout: Layout, place: int) -> int:
    """The index along `layout` of what is at `place`."""
    index = 0
    for size, stride in layout:
        index = index * size + place // stride % size
    return index


def joined(layouts: Iterable[Layout]) -> Layout:
    """One layout that runs over several, the last one fastest."""
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
    """Layouts of these sizes that `layout` runs over, the last one fastest.

    None where there are none: a part would have to end within a run, and that does not
    divide it.
    """
    left = list(layout)
    span = left[-1].stride  # of what has been cut off
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
    """Whether two of them have more than one place in common."""
    runs = sorted(
        (run for layout in layouts for run in layout if run.size > 1),
        key=lambda run: run.stride,
    )
    return any(
        outer.stride % (inner.size * inner.stride)
        for inner, outer in itertools.pairwise(runs)
    )


def is_ascending(layouts: Iterable[Layout]) -> bool:
    """Whether they lie in the order of the grid's axes, the outermost first."""
    strides = [run.stride for layout in layouts for run in layout]
    return strides == sorted(strides, reverse=True)
