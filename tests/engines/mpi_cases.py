"""What is MPI's own about backend mpi; `test_mpi` runs it under mpiexec, on 3 ranks."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.plain_calls import fail_plain, note_plain
from harness.ranks import run_ranks

SECOND = timedelta(seconds=1)


def test_pairs_name_it_as_well_and_it_is_said_to_be_there():
    def body(rank):
        group = dist.new_group(backend="cpu:mpi,cuda:fake")
        total = np.ones(1)
        dist.all_reduce(total, group=group)
        kind = type(dist.get_backend_impl(group, "cpu")).__name__
        return dist.get_backend_config(group), kind, total[0], dist.is_mpi_available()

    expected = "cpu:mpi,cuda:fake", "MpiCommunicator", 3, True
    assert run_ranks(3, body) == [expected] * 3


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


def test_a_rank_sends_to_itself():
    def body(rank):
        here = np.empty(3)
        work = dist.irecv(here, src=rank, tag=5)
        dist.isend(np.arange(3.0), rank, tag=5).wait()
        assert work.wait()
        assert work.source_rank() == rank
        return here.tolist()

    assert run_ranks(3, body) == [[0, 1, 2]] * 3


def test_a_message_of_no_whole_number_of_elements_is_refused():
    def body(rank):
        if rank == 1:
            dist.send(np.ones(3, np.float32), 0)
        elif rank == 0:
            with pytest.raises(
                dist.DistBackendError, match="has 12 bytes, the array 32"
            ):
                dist.recv(np.ones(4), 1, status=dist.Status())
        dist.barrier()

    run_ranks(3, body)


PLAIN = ("i4", "i8", "u4", "u8", "f4", "f8")
OPS = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}


@pytest.mark.parametrize("count", [0, 1, 1000, 300_000])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_plain_arrays_are_reduced_with_those_that_are_not(size, count):
    def body(rank):
        taken = note_plain(dist.group.WORLD.communicator)
        for number, dtype in enumerate(PLAIN):
            for name, function in OPS.items():
                op = getattr(dist.ReduceOp, name)
                inputs = [(np.arange(count) + r) % 5 for r in range(size)]
                plain = inputs[rank].astype(dtype)
                strided = np.repeat(plain, 2)[::2]
                here = strided if rank == number % size else plain
                dist.all_reduce(here, op)
                assert taken.pop() == (here.flags.c_contiguous and count > 0)
                expected = function.reduce([each.astype(dtype) for each in inputs])
                assert np.array_equal(here, expected), (dtype, name)

    run_ranks(size, body)


def test_a_plain_reduction_that_is_interrupted_ends_that_of_the_others():
    def body(rank):
        group = dist.new_group()
        if rank == 0:
            fail_plain(group.communicator, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                dist.all_reduce(np.ones(1), group=group)
        text = "all_reduce #1 was interrupted by KeyboardInterrupt"
        for _ in range(2):
            with pytest.raises(dist.DistBackendError, match=text):
                dist.all_reduce(np.ones(1), group=group)
        dist.barrier()

    run_ranks(3, body)


def test_a_plain_reduction_that_fails_breaks_the_group():
    from mpi4py import MPI

    def body(rank):
        group = dist.new_group()
        fail_plain(group.communicator, MPI.Exception(MPI.ERR_OTHER))
        with pytest.raises(dist.DistBackendError, match=r"all_reduce #1: .* says: "):
            dist.all_reduce(np.ones(1), group=group)
        for call in (lambda: dist.all_reduce(np.ones(1), group=group), group.barrier):
            with pytest.raises(dist.DistBackendError, match=r"broken since: .* says: "):
                call()
        dist.barrier()

    run_ranks(3, body)


def test_a_plain_reduction_that_some_do_not_call_names_them():
    def body(rank):
        group = dist.new_group(timeout=SECOND)
        if rank < 2:
            taken = note_plain(group.communicator)
            with pytest.raises(dist.CollectiveTimeoutError) as info:
                dist.all_reduce(np.ones(1), group=group)
            assert taken == [True]
            assert "all_reduce #1 timed out" in str(info.value)
            assert 2 in info.value.ranks
        dist.barrier()

    run_ranks(3, body)
