"""Objects combined by a function; ranks are threads."""

import operator
import threading
from collections import Counter
from functools import reduce

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks


def joined(one, other):
    return f"({one}{other})"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_the_ranks_objects_are_combined_in_their_order(size):
    words = [chr(ord("a") + rank) for rank in range(size)]

    def body(rank):
        last = size - 1
        here = dist.reduce_object(words[rank], op=joined, group_dst=last)
        assert here == (reduce(joined, words) if rank == last else None)
        total = dist.all_reduce_object(np.arange(3) + rank)
        assert total.tolist() == sum(np.arange(3) + r for r in range(size)).tolist()
        counts = dist.all_reduce_object(Counter(words[: rank + 1]))
        assert counts["a"] == size
        assert dist.all_reduce_object((-rank, rank), op=min) == (-last, last)
        return dist.all_reduce_object(words[rank], joined)

    assert run_ranks(size, body) == [reduce(joined, words)] * size


def test_only_one_rank_calls_the_function():
    callers = []

    def noted(one, other):
        callers.append(threading.current_thread().name)
        return one + other

    def body(rank):
        dist.all_reduce_object(rank, noted)
        dist.barrier()
        dist.reduce_object(rank, 2, noted)
        dist.barrier()

    run_ranks(3, body)
    assert callers == ["rank 0"] * 2 + ["rank 2"] * 2


def test_an_exception_reaches_all_ranks_and_the_group_works_on():
    def body(rank):
        kind, text = ZeroDivisionError, "division by zero"
        if rank:
            kind = dist.DistBackendError
            text = "all_reduce_object: rank 0 of the group: op raised ZeroDivisionError"
        with pytest.raises(kind, match=text):
            dist.all_reduce_object(rank, op=lambda one, other: one / 0)
        if rank == 1:
            with pytest.raises(ZeroDivisionError):
                dist.reduce_object(rank, 1, op=lambda one, other: one / 0)
        else:
            assert dist.reduce_object(rank, 1) is None
        return dist.all_reduce_object(rank)

    assert run_ranks(3, body) == [3] * 3


def test_a_result_that_cannot_be_pickled_reaches_all_ranks():
    def body(rank):
        kind = dist.DistBackendError if rank else TypeError
        with pytest.raises(kind, match="pickle"):
            dist.all_reduce_object(rank, op=lambda one, other: threading.Lock())
        return dist.all_reduce_object(rank)

    assert run_ranks(3, body) == [3] * 3


def test_ctrl_c_in_the_function_breaks_the_group_instead_of_hanging_it():
    def interrupted(one, other):
        raise KeyboardInterrupt

    def body(rank):
        kind = dist.DistBackendError if rank else KeyboardInterrupt
        with pytest.raises(kind) as info:
            dist.all_reduce_object(rank, op=interrupted)
        assert not rank or "all_reduce_object ended in the middle" in str(info.value)

    run_ranks(3, body)


def test_a_group_of_some_ranks():
    def body(rank):
        odd = dist.new_group([1, 3])
        if rank % 2 == 0:
            with pytest.warns(UserWarning, match="does not belong"):
                assert dist.all_reduce_object(rank, group=odd) is None
            return None
        with pytest.raises(ValueError, match="0"):
            dist.reduce_object(rank, 0, group=odd)
        assert dist.reduce_object(rank, 3, group=odd) == (4 if rank == 3 else None)
        return dist.all_reduce_object(rank, operator.mul, odd)

    assert run_ranks(4, body) == [None, 3, None, 3]


@pytest.mark.parametrize("call", [dist.all_reduce_object, dist.reduce_object])
@pytest.mark.parametrize(
    "op", [dist.ReduceOp.SUM, dist.ReduceOp.PREMUL_SUM(2), None, "sum"]
)
def test_what_is_no_function_is_refused_by_every_rank(call, op):
    def body(rank):
        with pytest.raises(TypeError, match=f"^{call.__name__}: op .* operator.add"):
            call(rank, op=op)
        return dist.all_reduce_object(rank)

    assert run_ranks(2, body) == [1, 1]
