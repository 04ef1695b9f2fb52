"""What holds where another library carries out the operations, on 3 ranks.

`test_mpi` runs it under mpiexec, `test_xccl` under `allhands run`; tests of Gloo, in
threads.
"""

import asyncio
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness import ranks
from harness.ranks import run_ranks

SECOND = timedelta(seconds=1)
HAS_MESSAGES = ranks.BACKEND != "xccl"
with_messages = pytest.mark.skipif(
    not HAS_MESSAGES, reason="oneCCL has no messages between CPU arrays"
)
TELLS_WHAT_CAME = ranks.BACKEND not in ("gloo", "xccl")
telling = pytest.mark.skipif(
    not TELLS_WHAT_CAME, reason="the library does not tell what has come"
)


@with_messages
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


@telling
def test_messages_that_are_only_known_when_they_come():
    def body(rank):
        if rank:
            works = [
                dist.isend(np.full(n, 1.0 * rank), 0, tag=n)
                for n in (0, 5, 4_000, 200_000)
            ]
            dist.send_object_list(["no message"], 0)
            for work in works:
                work.wait()
            return None
        found = []
        for number in range(8):
            seen, status = dist.probe(), dist.Status()
            for here in (np.full(200_001, -1.0), np.full((200_001, 2), -1.0)[:, 0]):
                if number % 2 == here.flags.c_contiguous:
                    dist.recv(here, seen.source, tag=dist.ANY_TAG, status=status)
                    break
            count = status.count(float)
            assert (here[:count] == status.source).all()
            assert (here[count:] == -1).all()
            assert (seen.tag, seen.count(float)) == (status.tag, count) == (count,) * 2
            found.append((status.source, count))
        assert dist.iprobe() is None
        for source in (1, 2):
            dist.recv_object_list([None], source)
        return [[n for src, n in found if src == source] for source in (1, 2)]

    assert run_ranks(3, body)[0] == [[0, 5, 4_000, 200_000]] * 2


@telling
def test_probes_end_with_their_limit_and_with_their_peer():
    def body(rank):
        group = dist.new_group()
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match="probe from rank 1"):
                dist.probe(1, group, tag=3, timeout=SECOND / 10)
        dist.barrier()
        if rank == 1:
            dist.destroy_process_group(group)
        if rank == 0:
            with pytest.raises(dist.RankFailedError, match="rank"):
                dist.probe(1, group)
            with pytest.raises(dist.RankFailedError, match="rank"):
                look_until_it_comes(1, group)
        dist.barrier()

    run_ranks(3, body)


def look_until_it_comes(source, group):
    while dist.iprobe(source, group) is None:
        pass


def test_objects_are_gathered():
    def body(rank):
        everybody = [None] * 3
        dist.all_gather_object(everybody, {"rank": rank, "data": np.arange(rank)})
        return [(one["rank"], one["data"].tolist()) for one in everybody]

    assert run_ranks(3, body) == [[(0, []), (1, [0]), (2, [0, 1])]] * 3


@with_messages
def test_objects_pass_beside_messages():
    def body(rank):
        if rank == 2:
            dist.send_object_list(["x" * 100_000, rank], dst=0)
        if rank == 0:
            objects = [None, None]
            assert dist.recv_object_list(objects) == 2
            assert objects == ["x" * 100_000, 2]
        dist.barrier()

    run_ranks(3, body)


def test_what_else_programs_of_mpi_know():
    def body(rank):
        group = dist.split_group_by_color(rank // 2, -rank)
        members = dist.get_process_group_ranks(group)
        assert members == ([2] if rank == 2 else [1, 0])
        assert dist.all_reduce_object(f"{rank}", group=group) == "".join(
            map(str, members)
        )
        pair = np.array([rank, -rank]), np.full(2, rank)
        most, where = dist.all_reduce_object(pair, dist.maxloc)
        assert (most.tolist(), where.tolist()) == ([2, 0], [2, 0])
        total = dist.all_reduce_object(np.eye(2) * (rank + 1), np.matmul)
        assert total.tolist() == [[6, 0], [0, 6]]
        with pytest.raises((ZeroDivisionError, dist.DistBackendError), match="zero"):
            dist.all_reduce_object(pair, lambda one, other: 1 // 0)
        views = [np.empty(n) for n in range(3)] if rank == 1 else None
        dist.gatherv(np.full(rank, 1.0 * rank), views, dst=1)
        if rank == 1:
            assert [view.tolist() for view in views] == [[], [1], [2, 2]]
        here = np.empty(rank)
        dist.scatterv(here, views, src=1)
        assert here.tolist() == [rank] * rank

    run_ranks(3, body)


@with_messages
def test_waits_for_any_message():
    def body(rank):
        works = [dist.irecv(np.empty(1), src) for src in range(3) if src != rank]
        sent = [dist.isend(np.ones(1), dst) for dst in range(3) if dst != rank]
        found = []
        while (index := dist.wait_any(works)) is not None:
            found.append(index)
            works[index] = None
        for work in sent:
            work.wait()
        return sorted(found)

    assert run_ranks(3, body) == [[0, 1]] * 3


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


# Last: oneCCL cannot end an operation whose peer does not come, and its threads spin.
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
