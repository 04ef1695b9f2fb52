"""A pytest plugin for a job of mpiexec's: thread ranks become its processes.

Each process runs the same tests in the same order, and `run_ranks(size, body)` runs
`body` in the first `size` of them, as ranks of a world of backend mpi that the test has
for itself. What `run_ranks` would do for a world of another backend it still does, in
threads of each process.
"""

import collections
import os
import traceback
from datetime import timedelta

import allhands as dist
from allhands.rendezvous.mpi_job import join_mpi_job
from allhands.store import PrefixStore
from harness import ranks

LIMIT = 8.0  # seconds: tests that fail on one rank leave the others waiting

_in_threads = ranks.run_ranks
_job = join_mpi_job()
dist.init_process_group("mpi", timeout=timedelta(seconds=LIMIT))
_store = dist.group.WORLD.get_group_store()
_num_worlds = collections.Counter()


def run_ranks(size, body, *, timeout=LIMIT, backend=None, init=True):
    """See `harness.ranks.run_ranks`."""
    if backend not in (None, "native", "mpi") or not init or size > _job.size:
        return _in_threads(size, body, timeout=timeout, backend=backend, init=init)
    test = os.environ["PYTEST_CURRENT_TEST"]
    _num_worlds[test] += 1
    outcome = None, None
    if _job.rank < size:
        store = PrefixStore(f"{test}/{_num_worlds[test]}", _store)
        outcome = _outcome(size, body, store, min(timeout, LIMIT))
    outcomes = [None] * _job.size
    dist.all_gather_object(outcomes, outcome)
    errors = {rank: error for rank, (_, error) in enumerate(outcomes) if error}
    if errors:
        text = "".join(f"rank {rank}:\n{error}" for rank, error in errors.items())
        raise ranks.RanksFailed(text, errors)
    return [result for result, _ in outcomes[:size]]


def _outcome(size, body, store, timeout):
    """What `body` returned on this rank, or the text of what it raised."""
    try:
        with ranks.use(ranks.World()):
            dist.init_process_group(
                "mpi",
                store=store,
                rank=_job.rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
            )
            try:
                return body(_job.rank), None
            finally:
                if dist.is_initialized():
                    dist.destroy_process_group()
    except BaseException:
        return None, traceback.format_exc()


ranks.run_ranks = run_ranks
ranks.BACKEND = "mpi"
