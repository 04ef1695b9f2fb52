"""The file descriptors that the launcher needs: so many for each rank, made room for.

Where it may have too few it asks the kernel for as many as the hard limit allows, for
as long as the job runs. Ranks start with the limit that the launcher was given.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from allhands.elastic.logs import Std
from allhands.elastic.node_ranks import NodeRanks
from allhands.elastic.worker_spec import WorkerSpec

__all__ = ["num_held", "room_for"]

# While a rank is started: its ends of the pipes, its log files, the pipe by which it
# tells that it could not be; and what a program may connect to the store beside it.
_SPARE = 32
_STREAMS = (Std.OUT, Std.ERR)
# A rank has one for its requests, and one for its last will until all have met.
_OF_A_RANK = 2
# Its threads', one for its last will, and its relay's.
_OF_A_LAUNCHER = 5


@contextmanager
def room_for(ranks: int, needed: int) -> Iterator[Callable[[], None] | None]:
    """Have room for what `ranks` need; yields what gives a new process its own limit.

    It yields None where the limit is high enough as it is.

    Raises:
        OSError: the hard limit is too low.
    """
    limits = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = len(os.listdir("/proc/self/fd")) + _SPARE
    if _is_within(own + needed, soft):
        yield None
        return
    if not _is_within(own + needed, hard):
        num_fit = (hard - own) * ranks // needed
        raise OSError(
            f"{ranks} {'rank' if ranks == 1 else 'ranks'} need {own + needed} file "
            f"descriptors in this process, which may have {hard}: raise the hard limit "
            f"(`ulimit -n {own + needed}` as root), or start at most {max(0, num_fit)}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        # One call into C: another thread's locks cannot stop it after a fork.
        yield partial(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def num_held(spec: WorkerSpec) -> int:
    """What the launcher holds for the ranks' streams, ends and connections."""
    ranks = range(spec.num_workers)
    streams = sum(_num_of(spec, rank, std) for rank in ranks for std in _STREAMS)
    return len(ranks) + _num_served(spec.node_ranks) + streams  # a pidfd for each


def _num_served(ranks: NodeRanks) -> int:
    """Connections of ranks to the store or its relay, and of launchers to the store."""
    of_other_launchers = _OF_A_LAUNCHER * (ranks.num_nodes - 1)
    return _OF_A_RANK * ranks.num_workers + (
        of_other_launchers if ranks.node == 0 else 0
    )


def _num_of(spec: WorkerSpec, rank: int, std: Std) -> int:
    """The pipe of a stream and the files that it is copied to; no file alone."""
    to_file = spec.logs.to_file(rank, std)
    if not spec.logs.to_console(rank, std):
        return 0 if to_file else 1
    is_filtered = bool(spec.filters.get(std)) and spec.logs.is_teed(rank, std)
    return 1 + to_file + is_filtered


def _is_within(count: int, limit: int) -> bool:
    return limit == resource.RLIM_INFINITY or count <= limit
