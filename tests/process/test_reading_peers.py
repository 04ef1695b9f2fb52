"""Large arrays, which ranks read from each other's memory where the host allows it."""

import signal
import sys

import pytest

from harness.ranks import Processes
from harness.refusal import refuse

READ_SOON = (
    "read_bytes=16K,read_broadcast_bytes=16K,read_rooted_bytes=16K,"
    "read_all_to_all_bytes=16K,"
    "read_reduce_bytes=64K,read_reduce_scatter_bytes=64K"
)

ALL_OPERATIONS = """
    import math

    def check(count):
        mine = np.arange(count, dtype=np.int64) * (rank + 1)
        parts = [np.arange(count, dtype=np.int64) * (r + 1) for r in range(size)]
        whole = np.concatenate(parts)

        x = mine.copy()
        dist.all_reduce(x)
        np.testing.assert_array_equal(x, sum(parts))

        x = mine.copy()
        dist.broadcast(x, size - 1)
        np.testing.assert_array_equal(x, parts[-1])

        x = mine[::-1].copy()[::-1]  # strided
        dist.broadcast(x, 0)
        np.testing.assert_array_equal(x, parts[0])

        out = np.empty_like(whole)
        dist.all_gather_single(out, mine)
        np.testing.assert_array_equal(out, whole)

        outs = [np.empty((count, 2), np.int64)[:, 0] for _ in range(size)]  # strided
        dist.all_gather(outs, mine)
        np.testing.assert_array_equal(np.concatenate(outs), whole)

        out = whole.copy()  # in place
        dist.all_gather_single(out, out[rank * count : (rank + 1) * count])
        np.testing.assert_array_equal(out, whole)

        out = np.empty_like(mine)
        dist.reduce_scatter_single(out, whole * (rank + 1))
        np.testing.assert_array_equal(out, parts[rank] * (size * (size + 1) // 2))

        out = np.empty_like(whole)
        sent = np.concatenate([mine * 100**r for r in range(size)])
        dist.all_to_all_single(out, sent)
        np.testing.assert_array_equal(out, whole * 100**rank)

        # Some pairs exchange much, others little.
        sent = [np.full(count if (rank + r) % 2 else 3, rank) for r in range(size)]
        came = [np.empty(count if (rank + r) % 2 else 3, int) for r in range(size)]
        dist.all_to_all(came, sent)
        for r, x in enumerate(came):
            np.testing.assert_array_equal(x, np.full(len(x), r))

        for root in range(size):
            outs = [np.empty_like(mine) for _ in range(size)] if rank == root else None
            dist.gather(mine, outs, root)
            if rank == root:
                np.testing.assert_array_equal(np.concatenate(outs), whole)

        out = np.empty_like(mine)
        dist.scatter(out, parts if rank == 1 else None, 1)
        np.testing.assert_array_equal(out, parts[rank])

    for count in (999, 10_001, 300_007):
        check(count)
    give("right")
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("very_large", ["48M", "1M"])
def test_every_operation_on_large_arrays(monkeypatch, size, very_large):
    tuning = f"{READ_SOON},read_most_bytes={very_large},stream_bytes={very_large}"
    monkeypatch.setenv("ALLHANDS_TUNING", tuning)
    with Processes(size, ALL_OPERATIONS) as ranks:
        assert ranks.join() == ["right"] * size


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_a_host_that_refuses_one_rank(monkeypatch):
    monkeypatch.setenv("ALLHANDS_TUNING", READ_SOON)
    source = refuse("process_vm_readv", rank=1)
    with Processes(3, source + ALL_OPERATIONS) as ranks:
        assert ranks.join() == ["right"] * 3


@pytest.mark.parametrize("dead", [0, 1])
def test_a_rank_that_dies_is_named(dead):
    source = f"""
        x = np.ones(1 << 20)
        try:
            with dist.debug.faults("rank={dead},nth=2,after=1ms,do=kill"):
                while True:
                    dist.broadcast(x, 0)
        except dist.RankFailedError as error:
            give(error.ranks)
            os._exit(0)
    """
    with Processes(2, source) as ranks:
        codes = [0, 0]
        codes[dead] = -signal.SIGKILL
        assert ranks.join(codes=codes)[1 - dead] == [dead]
