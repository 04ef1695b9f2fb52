"""What NCCL's operations are to the streams of a GPU; not a test by its name.

`test_gpus` runs it with `gpu_cases`.
"""

from datetime import timedelta

import pytest
import torch

import allhands as dist
from allhands.rendezvous.ranges import in_ranges
from harness.ranks import run_ranks

WORLD = dist.get_world_size()
sizes = pytest.mark.parametrize("size", [size for size in (1, 2, 3) if size <= WORLD])


def on_gpu(values):
    return torch.tensor(values, device="cuda")


def busy(seconds):
    """Let the current stream do something for about so long."""
    torch.cuda._sleep(int(seconds * 2e9))  # at some 2 GHz


@sizes
def test_a_wait_blocks_the_stream_and_not_the_program(size):
    def body(rank):
        array = torch.zeros(1 << 16, device="cuda").fill_(1.0) * 2  # loads kernels
        dist.all_reduce(array)
        torch.cuda.synchronize()
        busy(0.5)
        array.fill_(rank + 1.0)
        work = dist.all_reduce(array, async_op=True)
        work.wait()
        double = array * 2
        assert not work.is_completed()  # the GPU is still busy
        assert double[0].item() == size * (size + 1)
        assert work.wait(timedelta(seconds=30))
        assert work.is_completed()
        busy(0.5)
        work = dist.all_reduce(array, async_op=True)
        work.wait(timedelta(seconds=30))  # on the CPU
        assert work.is_completed()

    run_ranks(size, body)


@sizes
def test_the_flight_recorder_sees_the_gpu(size):
    def body(rank):
        array = on_gpu([1.0, 2.0])
        for _ in range(3):
            dist.all_reduce(array)
        busy(0.5)
        work = dist.all_reduce(array, async_op=True)
        communicator = dist.group.WORLD.communicator
        last = communicator.flight_entries(3)
        assert [(each["op"], each["state"]) for each in last] == [
            ("all_reduce", "started")
        ]
        work.wait(timedelta(seconds=30))
        told = communicator.flight_entries()
        assert [each["state"] for each in told] == ["completed"] * 4
        assert (told[0]["dtype"], told[0]["count"]) == ("float32", 2)
        assert told[3]["ended"] - told[3]["issued"] > 0.1e9

    run_ranks(size, body)


@sizes
def test_groups_are_split_off_without_a_meeting(size):
    def body(rank):
        dist.all_reduce(on_gpu([1.0]))
        parts = [list(range(size))[::2], list(range(size))[1::2]]
        mine = parts[rank % 2]
        given = dist.NcclOptions(split_share=True)
        for options in (None, given):
            lists = [part for part in parts if part]
            group = dist.split_group(split_ranks=lists, pg_options=options)
            array = on_gpu([rank + 1.0])
            dist.all_reduce(array, group=group)
            assert array.item() == sum(mine) + len(mine)
            key = f"{in_ranges(list(range(len(mine))))}/id"
            assert not group.communicator._store.check([key])

    run_ranks(size, body)


def test_an_operation_that_does_not_end_is_aborted():
    def body(rank):
        group = dist.new_group([0], timeout=timedelta(seconds=1))
        array = on_gpu([1.0])
        dist.all_reduce(array, group=group)
        torch.cuda.synchronize()
        busy(6.0)  # the operation comes behind it
        work = dist.all_reduce(array, group=group, async_op=True)
        with pytest.raises(dist.CollectiveTimeoutError, match=r"waited 1 s"):
            work.wait(timedelta(seconds=60))
        assert not torch.cuda.current_stream().query()
        with pytest.raises(dist.DistBackendError, match="broken since"):
            dist.all_reduce(array, group=group)
        torch.cuda.synchronize()
        dist.all_reduce(array)  # other groups go on

    run_ranks(1, body)


def test_an_abort_ends_what_is_under_way():
    def body(rank):
        group = dist.new_group([0])
        array = on_gpu([1.0])
        dist.all_reduce(array, group=group)
        torch.cuda.synchronize()
        busy(3.0)
        work = dist.all_reduce(array, group=group, async_op=True)
        group.abort()
        with pytest.raises(dist.DistBackendError, match="aborted"):
            work.wait(timedelta(seconds=60))
        torch.cuda.synchronize()

    run_ranks(1, body)


@sizes
def test_options_reach_nccl(size):
    def body(rank):
        options = dist.NcclOptions(
            is_high_priority_stream=True, min_ctas=1, max_ctas=2, cga_cluster_size=0
        )
        group = dist.new_group(list(range(size)), pg_options=options)
        array = on_gpu([rank + 1.0])
        dist.all_reduce(array, group=group, async_op=True).wait()
        assert array.item() == size * (size + 1) / 2
        blocking = dist.NcclOptions(blocking_wait=True)
        group = dist.new_group(list(range(size)), pg_options=blocking)
        busy(0.3)
        work = dist.all_reduce(array, group=group, async_op=True)
        work.wait()
        assert work.is_completed()

    run_ranks(size, body)
