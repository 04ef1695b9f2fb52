"""gather, gather_single and scatter: what a root collects and hands out."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks


@pytest.mark.parametrize("options", [{"dst": 2}, {"group_dst": 2}])
def test_gather_collects_on_one_rank(options):
    def body(rank):
        parts = [np.zeros(2) for _ in range(3)] if rank == 2 else None
        mine = np.full(2, float(rank))
        mine.flags.writeable = False
        work = dist.gather(mine, parts, async_op=True, **options)
        work.wait()
        return parts and [part.tolist() for part in parts]

    assert run_ranks(3, body) == [None, None, [[0, 0], [1, 1], [2, 2]]]


def test_scatter_gives_each_rank_its_part():
    def body(rank):
        results = []
        for options in ({}, {"src": 1}, {"group_src": 1}):
            mine = np.zeros(2)
            is_source = rank == (1 if options else 0)
            parts = list(np.arange(6.0).reshape(3, 2)) if is_source else None
            dist.scatter(mine, parts, **options)
            results.append(mine.tolist())
        return results

    assert run_ranks(3, body) == [[[0, 1]] * 3, [[2, 3]] * 3, [[4, 5]] * 3]


def test_gather_and_scatter_refuse():
    def body(rank):
        one = np.zeros(1)
        other = 1 - rank
        calls = [
            (dist.gather, "gather_list", "dst", "destination"),
            (dist.scatter, "scatter_list", "src", "source"),
        ]
        for call, name, root, role in calls:
            for given, options, error, message in [
                (None, {root: rank}, ValueError, f"``{name}`` must be specified on"),
                ([one, one], {root: other}, ValueError, f"NOT .* on non-{role} ranks"),
                ([one], {root: rank}, RuntimeError, "list size should be 2, same as"),
                ((one, one), {root: rank}, TypeError, f"`{name}` of type list"),
                ([one, one[:0]], {root: rank}, ValueError, "0 elements, expected 1"),
                ([one, one > 0], {root: rank}, ValueError, "found float64 and bool"),
                (None, {root: 2}, RuntimeError, r"invalid root rank: 2.* \[0, 2\)"),
            ]:
                with pytest.raises(error, match=message):
                    call(one, given, **options)
        group = dist.new_group([1])
        if rank == 1:
            with pytest.raises(ValueError, match="Global rank 0 is not part of group"):
                dist.gather(one, [one], group=group)
        dist.barrier()  # the group still works

    run_ranks(2, body)


def test_gather_single_collects_on_the_root():
    def body(rank):
        everyone = np.empty((3, 2)) if rank == 1 else None
        work = dist.gather_single(np.full(2, float(rank)), everyone, 1, async_op=True)
        work.wait()
        return None if everyone is None else everyone.tolist()

    assert run_ranks(3, body) == [None, [[0, 0], [1, 1], [2, 2]], None]


def test_gather_single_refuses():
    def body(rank):
        one, two = np.zeros(1), np.zeros(2)
        other = two if rank == 0 else None
        with pytest.raises(ValueError, match=r"``gather_tensor`` must"):
            dist.gather_single(one, None if rank == 0 else two, 0)
        with pytest.raises(RuntimeError, match="invalid root rank: 2"):
            dist.gather_single(one, two, group_dst=2)
        if rank == 0:
            with pytest.raises(ValueError, match=r"gather_tensor has 2 elements.*4"):
                dist.gather_single(two, other, 0)
        dist.gather_single(one, other)  # to rank 0

    run_ranks(2, body)


def test_a_plain_gather_single_has_ended_when_it_returns():
    def body(rank):
        output = np.zeros(2) if rank == 0 else None
        assert dist.gather_single(np.full(1, rank + 1.0), output) is None
        return None if output is None else output.tolist()

    assert run_ranks(2, body) == [[1.0, 2.0], None]
