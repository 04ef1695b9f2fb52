"""Turns the ranks of tests from threads into the processes of a job, for plug-ins.

Each process runs the same tests in the same order, and `run_ranks(size, body)` runs
`body` in the first `size` of them, as ranks of a world of the job's backend that the
test has for itself. What `run_ranks` would do for a world of another backend it still
does, in threads of each process.
"""

import collections
import os
import traceback
from datetime import timedelta

import allhands as dist
from allhands.store import PrefixStore
from harness import ranks

LIMIT = 8.0  # seconds: tests that fail on one rank leave the others waiting

_in_threads = ranks.run_ranks


def become(backend, limit=LIMIT):
    """Let `run_ranks` make worlds of `backend`; the job's world is there already.

    What waits in them waits for `limit` seconds at most.
    """
    place = dist.get_rank(), dist.get_world_size()
    store = dist.group.WORLD.get_group_store()
    num_worlds = collections.Counter()

    def run_ranks(size, body, *, timeout=limit, backend=None, init=True):
        """See `harness.ranks.run_ranks`."""
        rank, most = place
        if backend not in (None, "native", ranks.BACKEND) or not init or size > most:
            return _in_threads(size, body, timeout=timeout, backend=backend, init=init)
        test = os.environ["PYTEST_CURRENT_TEST"]
        num_worlds[test] += 1
        outcome = None, None
        if rank < size:
            own = PrefixStore(f"{test}/{num_worlds[test]}", store)
            outcome = _outcome(rank, size, body, own, min(timeout, limit))
        outcomes = [None] * most
        dist.all_gather_object(outcomes, outcome)
        errors = {rank: error for rank, (_, error) in enumerate(outcomes) if error}
        if errors:
            text = "".join(f"rank {rank}:\n{error}" for rank, error in errors.items())
            raise ranks.RanksFailed(text, errors)
        return [result for result, _ in outcomes[:size]]

    ranks.run_ranks = run_ranks
    ranks.BACKEND = backend


def _outcome(rank, size, body, store, timeout):
    """What `body` returned on this rank, or the text of what it raised."""
    try:
        with ranks.use(ranks.World()):
            dist.init_process_group(
                ranks.BACKEND,
                store=store,
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
            )
            try:
                return body(rank), None
            finally:
                if dist.is_initialized():
                    dist.destroy_process_group()
    except BaseException:
        return None, traceback.format_exc()
