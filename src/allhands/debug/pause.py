"""breakpoint: the Python debugger on one rank, while the others wait."""

from __future__ import annotations

import os
import sys
from collections import Counter
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any

from allhands.groups.queries import get_rank
from allhands.ops.collectives import barrier

if TYPE_CHECKING:
    import pdb

__all__ = ["breakpoint"]

_num_skipped: Counter[tuple[int, str, int]] = Counter()
"""Calls that did nothing, by rank, file and line."""


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float | None = 3600) -> None:
    """Stop in the debugger on the global `rank`; the other ranks wait for it.

    Every rank of the world calls it. The debugger (pdb) reads this process's standard
    input, also in a child of multiprocessing, and begins in the caller's frame.
    `continue` lets all ranks continue. `allhands run` gives its standard input to the
    first rank of each host, so other ranks cannot stop under it.

    Args:
        rank: the rank to stop on.
        skip: the number of first calls from the same line that do nothing.
        timeout_s: seconds for which the others wait; None means the group's timeout.

    Raises:
        CollectiveTimeoutError: the session took longer.
        RankFailedError: `rank` quit.
        RuntimeError: this is `rank`, and it has no standard input.

    Example:
        ```python
        for step in range(1000):
            dist.breakpoint(rank=1, skip=10)  # from the 11th step on
        ```
    """
    here = get_rank()
    if _is_skipped(here, skip, sys._getframe(1)):
        return
    limit = None if timeout_s is None else timedelta(seconds=timeout_s)
    if here == rank:
        _debugger(f"allhands.breakpoint(rank={rank}): the other ranks wait").set_trace()
    barrier(timeout=limit)


def _is_skipped(rank: int, skip: int, caller: FrameType) -> bool:
    """Return whether this call is one of the first `skip` from its line."""
    line = (rank, caller.f_code.co_filename, caller.f_lineno)
    if _num_skipped[line] >= skip:
        return False
    _num_skipped[line] += 1
    return True


def _debugger(greeting: str) -> pdb.Pdb:
    """Return a debugger that moves up from here to the caller of `breakpoint`."""
    if os.path.samestat(os.fstat(0), os.stat(os.devnull)):
        raise RuntimeError(
            "breakpoint: this process has no standard input (it is /dev/null) for the "
            "debugger to read; under a launcher stop on the first rank of the host"
        )
    import multiprocessing
    import pdb

    streams: dict[str, Any] = {}
    if multiprocessing.parent_process() is not None:  # its sys.stdin is /dev/null
        streams = {"stdin": open("/dev/stdin"), "stdout": sys.stdout}  # noqa: SIM115
    debugger = pdb.Pdb(nosigint=True, **streams)
    debugger.message(greeting)
    debugger.rcLines.append("up")
    return debugger
