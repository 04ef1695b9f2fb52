"""What holds where another library carries out the operations, on 3 ranks.

`test_mpi` runs it under mpiexec; tests of Gloo, in threads.
"""

import asyncio
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks

SECOND = timedelta(seconds=1)


def test_messages_of_any_source_and_tag():
    def body(rank):
        if rank:
            sent = [dist.isend(np.full(3, 10.0 * rank + t), 0, tag=t) for t in (7, 2)]
            return all(work.wait() for work in sent)
        here = np.empty(6)[::2]
        found = []
        for tag in (2, 7, 7, 2):  # not in the order in which they were sent
            source = dist.recv(here, tag=tag)
            assert here.tolist() == [10 * source + tag] * 3
            found.append((source, tag))
        return sorted(found)

    assert run_ranks(3, body)[0] == [(1, 2), (1, 7), (2, 2), (2, 7)]


def test_objects_pass_beside_messages():
    def body(rank):
        everybody = [None] * 3
        dist.all_gather_object(everybody, {"rank": rank, "data": np.arange(rank)})
        assert [one["rank"] for one in everybody] == [0, 1, 2]
        if rank == 2:
            dist.send_object_list(["x" * 100_000, rank], dst=0)
        if rank == 0:
            objects = [None, None]
            assert dist.recv_object_list(objects) == 2
            assert objects == ["x" * 100_000, 2]
        dist.barrier()

    run_ranks(3, body)


def test_a_collective_that_some_do_not_call_names_them_and_breaks_the_group():
    def body(rank):
        group = dist.new_group()
        if rank < 2:
            with pytest.raises(dist.CollectiveTimeoutError) as info:
                dist.all_reduce(np.ones(1), group=group, timeout=2 * SECOND)
            assert "all_reduce #1 timed out" in str(info.value)
            assert 2 in info.value.ranks
            with pytest.raises(dist.DistBackendError, match="broken since: all_reduce"):
                dist.barrier(group=group)
        dist.barrier()
        return True

    assert all(run_ranks(3, body))


def test_abort_ends_the_waits_of_the_others():
    def body(rank):
        group = dist.new_group()
        if rank == 1:
            group.abort("enough")
        else:
            with pytest.raises(dist.DistBackendError, match=r"enough"):
                dist.barrier(group=group)
        dist.barrier()

    run_ranks(3, body)


def test_who_left_is_named():
    def body(rank):
        group = dist.new_group()
        dist.barrier(group=group)
        if rank == 2:
            dist.destroy_process_group(group)
        else:
            with pytest.raises(dist.RankFailedError, match=r"rank \[2\]") as info:
                dist.barrier(group=group)
            assert info.value.ranks == [2]
        dist.barrier()

    run_ranks(3, body)


def test_futures_and_awaits_end_without_a_wait():
    def body(rank):
        x = np.ones(2)
        future = dist.all_reduce(x, async_op=True).get_future()
        assert future.then(lambda done: done.value()[0].sum()).wait() == 6

        async def sums():
            return await dist.all_reduce(x, async_op=True)

        assert asyncio.run(sums())
        return x.tolist()

    assert run_ranks(3, body) == [[9, 9]] * 3


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")

    def body(rank):
        x = torch.full((2, 3), float(rank)).T
        dist.all_reduce(x)
        assert torch.equal(x, torch.full((3, 2), 3.0))
        half = torch.full((4,), 1.5, dtype=torch.bfloat16)
        rows = [torch.empty_like(half) for _ in range(3)]
        dist.all_gather(rows, half * rank)
        assert [row[0].item() for row in rows] == [0, 1.5, 3]
        empty = torch.empty(0)
        dist.all_reduce(empty)

    run_ranks(3, body)


def test_16_bit_floats_have_the_bits_of_the_native_engine():
    mine = np.random.default_rng(3).uniform(-2, 2, (3, 1000)).astype(np.float16)
    ops = dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM(1 / 3)

    def body(rank):
        results = []
        for op in ops:
            x = mine[rank].copy()
            dist.all_reduce(x, op)
            results.append(x.tobytes())
        return results

    assert run_ranks(3, body) == run_ranks(3, body, backend="cpu:native")


def test_subgroups_are_split_and_have_ranks_of_their_own():
    def body(rank):
        odd = dist.new_group([2, 0], sort_ranks=False)
        if rank == 1:
            return None
        x = np.full(1, float(rank))
        dist.broadcast(x, group=odd, group_src=0)
        assert x == 2
        alone = odd.split_group([odd.rank()]) if rank else None
        if alone is not None:
            dist.barrier(group=alone)
        return dist.get_rank(odd)

    assert run_ranks(3, body) == [1, None, 0]
