"""Arrays in memory that a group's ranks share: how they are made, read, and freed."""

import gc
import pathlib

import ml_dtypes
import numpy as np
import pytest

import allhands as dist
from harness.ranks import outcomes, run_ranks


def mappings():
    """How many shared memories this process has mapped."""
    return pathlib.Path("/proc/self/maps").read_text().count("memfd:allhands")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 4), np.float32),
        (5, "int64"),
        ([2, 0], np.dtype("complex128")),
        ((), bool),
        (1000, ml_dtypes.bfloat16),
    ],
)
def test_each_rank_gets_a_zero_array(shape, dtype):
    def body(rank):
        array = dist.empty_shared(shape, dtype)
        assert array.shape == np.empty(shape).shape
        assert array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert not array.any()
        assert not array.size or array.ctypes.data % 4096 == 0
        array[...] = rank
        dist.barrier()
        assert (array == np.asarray(rank).astype(dtype)).all()

    run_ranks(3, body)


def test_peers_see_what_is_written():
    def body(rank):
        array = dist.empty_shared((2, 50), np.int32)
        array[...] = rank
        dist.barrier()
        left = dist.peer_array(array, (rank - 1) % 3)
        assert left.shape == (2, 50)
        assert (left == (rank - 1) % 3).all()
        dist.barrier()
        row = dist.peer_array(array[1, 10:20], group_peer=(rank + 1) % 3)
        row[:] = 7
        dist.barrier()
        assert (array[1, 10:20] == 7).all()
        assert (array[0] == rank).all()
        assert dist.peer_array(array, rank).ctypes.data == array.ctypes.data

    run_ranks(3, body)


def test_a_peers_array_keeps_the_memory():
    def body(rank):
        array = dist.empty_shared(100, np.int32)
        array[...] = rank
        dist.barrier()
        other = dist.peer_array(array, 1 - rank)
        dist.barrier()
        del array
        gc.collect()
        dist.barrier()
        assert (other == 1 - rank).all()

    run_ranks(2, body)


def test_peer_array_refuses_other_arrays():
    def body(rank):
        shared = dist.empty_shared(100, np.int32)
        group = dist.new_group([0, 1])
        other = dist.empty_shared(100, np.int32, group)
        for array in (np.zeros(3), shared[::2], other):
            with pytest.raises(ValueError, match="not in the shared memory of group"):
                dist.peer_array(array, 0)
        with pytest.raises(ValueError, match=r"peer must be in \[0, 2\), got 2"):
            dist.peer_array(shared, 2)
        assert dist.peer_array(other, 0, group).size == 100
        dist.barrier()

    run_ranks(2, body)


@pytest.mark.parametrize("count", [100, 100_000])
def test_collectives_on_whole_arrays_and_views(count):
    def body(rank):
        array = dist.empty_shared((2, count), np.float64)
        array[...] = rank + 1
        dist.all_reduce(array)
        assert (array == 6).all()
        array[...] = rank
        dist.all_reduce(array[1])
        dist.all_reduce(array[0, ::2])
        assert (array[1] == 3).all()
        assert (array[0, ::2] == 3).all()
        assert (array[0, 1::2] == rank).all()
        dist.reduce(array[1, 5:], 2)
        assert (array[1, 5:] == (9 if rank == 2 else 3)).all()

    run_ranks(3, body)


def test_async_operations_keep_the_array():
    def body(rank):
        array = dist.empty_shared(100_000, np.float32)
        array[...] = rank + 1
        view = array[1:]
        work = dist.all_reduce(view, async_op=True)
        del array, view
        assert work.wait()
        assert (work.result()[0] == 3).all()

    run_ranks(2, body)


def test_the_memory_is_freed_with_the_last_view():
    gc.collect()  # of earlier tests
    before = mappings()

    def body(rank):
        array = dist.empty_shared((10, 10), np.float32)
        view = array[3:]
        dist.barrier()
        during = mappings()
        dist.barrier()
        del array
        gc.collect()
        dist.barrier()
        assert mappings() == during
        dist.barrier()
        del view
        gc.collect()
        dist.barrier()
        assert mappings() == during - 2
        dist.barrier()

    run_ranks(2, body)
    assert mappings() == before


def test_the_array_outlives_its_group():
    def body(rank):
        array = dist.empty_shared(10, np.float32)
        array[...] = rank
        return array

    arrays = run_ranks(2, body)
    assert [array[9] for array in arrays] == [0, 1]
    arrays[0] += 5
    assert arrays[0][0] == 5


def test_ranks_that_ask_for_different_arrays_are_told():
    def body(rank):
        dist.empty_shared(10 + rank, np.float32)

    for error in outcomes(2, body):
        assert isinstance(error, dist.CollectiveMismatchError)
        assert r"empty_shared(float32, count 10)" in str(error)
        assert r"empty_shared(float32, count 11)" in str(error)


def test_without_memory_every_rank_is_told_and_the_group_works_on():
    def body(rank):
        with pytest.raises(
            dist.DistBackendError,
            match=r"empty_shared\(uint8, count \d+\) #1 on group '0': rank 0: needs "
            r"2097152.0 GiB of memory, this host has [\d.]+ GiB left",
        ):
            dist.empty_shared(1 << 50, np.uint8)
        array = dist.empty_shared(10, np.uint8)
        dist.all_reduce(array)

    run_ranks(2, body)


def test_bad_arguments_are_refused_before_anything_is_communicated():
    def body(rank):
        for shape in (-1, (2, -3), 1 << 63):
            with pytest.raises(ValueError, match=r"sizes must be in \[0, "):
                dist.empty_shared(shape, np.float32)
        with pytest.raises(ValueError, match="more bytes than memory can have"):
            dist.empty_shared((1 << 31, 1 << 31, 4), np.float32)
        with pytest.raises(TypeError):
            dist.empty_shared(2.5, np.float32)
        for dtype in ("S3", ">f4", "datetime64[s]", "O"):
            with pytest.raises(TypeError, match="can be communicated"):
                dist.empty_shared(3, dtype)
        dist.barrier()

    run_ranks(2, body)


def test_a_rank_outside_the_group_gets_a_warning():
    def body(rank):
        group = dist.new_group([0])
        if rank == 0:
            assert dist.empty_shared(3, np.float32, group).size == 3
        else:
            with pytest.warns(UserWarning, match="empty_shared on global rank 1"):
                assert dist.empty_shared(3, np.float32, group) is None
            with pytest.warns(UserWarning, match="peer_array on global rank 1"):
                assert dist.peer_array(np.zeros(3), 0, group) is None

    run_ranks(2, body)


def test_the_fake_backend_makes_arrays_of_its_own():
    def body(rank):
        array = dist.empty_shared((2, 3), np.float32)
        assert array.shape == (2, 3)
        assert dist.peer_array(array, 5) is array

    store = dist.HashStore()
    dist.init_process_group("fake", store=store, rank=0, world_size=8)
    try:
        body(0)
    finally:
        dist.destroy_process_group()
