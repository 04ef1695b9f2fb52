"""What is MPI's own about backend mpi; `test_mpi` runs it under mpiexec, on 3 ranks."""

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
            for tag in (7, 2):
                dist.send(np.full(3, 10.0 * rank + tag), 0, tag=tag)
            return None
        here = np.empty(6)[::2]
        found = []
        for tag in (2, 7, 7, 2):  # not in the order in which they were sent
            source = dist.recv(here, tag=tag)
            assert here.tolist() == [10 * source + tag] * 3
            found.append((source, tag))
        work = dist.irecv(here, src=0, tag=5)
        dist.isend(np.arange(3.0), 0, tag=5).wait()
        assert work.wait()
        assert work.source_rank() == 0
        return sorted(found)

    assert run_ranks(3, body)[0] == [(1, 2), (1, 7), (2, 2), (2, 7)]


def test_a_tag_that_mpi_has_not_is_refused():
    from mpi4py import MPI

    most = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    if most >= 2**31 - 1:
        pytest.skip(f"this MPI has every tag up to {most}")

    def body(rank):
        with pytest.raises(ValueError, match=rf"tag {most + 1}: .* from 0 to {most}"):
            dist.isend(np.ones(1), 0, tag=most + 1)

    run_ranks(3, body)


@pytest.mark.parametrize("length", [2, 9])
def test_a_message_of_another_size_is_an_error_and_the_group_works_on(length):
    def body(rank):
        if rank == 1:
            dist.send(np.ones(5), 0)
        if rank == 0:
            with pytest.raises(dist.DistBackendError, match=r"recv from rank 1, tag 0"):
                dist.recv(np.empty(length), 1)
        total = np.ones(1)
        dist.all_reduce(total)
        return total.tolist()

    assert run_ranks(3, body) == [[3]] * 3


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


def test_a_message_that_does_not_come_times_out_and_the_group_works_on():
    def body(rank):
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match="recv from rank 1"):
                dist.recv(np.empty(1), 1, timeout=SECOND)
            with pytest.raises(dist.CollectiveTimeoutError, match="goes on"):
                dist.irecv(np.empty(1), 1, tag=3).wait(SECOND / 10)
        dist.barrier()
        if rank == 1:  # nobody takes what was given up
            dist.send(np.full(1, 8.0), 0)
            dist.send(np.full(1, 9.0), 0, tag=3)
        if rank == 0:
            here = np.empty(1)
            dist.recv(here, 1)
            assert here == 8

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


def test_what_the_program_does_with_mpi_itself_is_left_alone():
    from mpi4py import MPI

    def body(rank):
        request = MPI.COMM_WORLD.irecv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)
        dist.sendrecv(np.ones(1), np.empty(1), (rank + 1) % 3, (rank - 1) % 3)
        everybody = [None] * 3
        dist.all_gather_object(everybody, rank)
        MPI.COMM_WORLD.send(rank, (rank + 1) % 3)
        return request.wait()

    assert run_ranks(3, body) == [2, 0, 1]


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
