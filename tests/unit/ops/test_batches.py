"""batch_isend_irecv: several messages as one."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks


def test_batch_of_operations():
    def body(rank):
        mine, theirs = np.full(9, rank), np.empty(9, int)
        ops = [
            dist.P2POp(dist.isend, mine, 1 - rank, tag=3),
            dist.P2POp(dist.irecv, theirs, group_peer=1 - rank, tag=3),
        ]
        assert ops[1].peer == ops[1].group_peer == 1 - rank
        works = dist.batch_isend_irecv(ops)
        assert [work.wait() for work in works] == [True, True]
        assert set(theirs) == {1 - rank}
        return repr(ops)

    assert run_ranks(2, body) == [
        f"[P2POp(isend pg=0, group_src={mine}, group_dst={theirs},  (9,), int64), "
        f"P2POp(irecv pg=0, group_src={theirs}, group_dst={mine},  (9,), int64)]"
        for mine, theirs in ((0, 1), (1, 0))
    ]


def test_a_batch_of_nothing_starts_nothing():
    assert run_ranks(2, lambda rank: dist.batch_isend_irecv([])) == [[], []]


def test_batches_that_are_none():
    def body(rank):
        array = np.zeros(1)
        with pytest.raises(ValueError, match=r"Invalid ``op``.*got <function send"):
            dist.P2POp(dist.send, array, 1 - rank)
        with pytest.raises(TypeError, match="of an array type"):
            dist.P2POp(dist.isend, [1], 1 - rank)
        op = dist.P2POp(dist.isend, array, 1 - rank)
        for wrong in ((op,), [op, None]):
            with pytest.raises(ValueError, match=r"``allhands.P2POp``"):
                dist.batch_isend_irecv(wrong)
        other = dist.P2POp(dist.isend, array, 1 - rank, group=dist.new_group())
        with pytest.raises(ValueError, match="All ops need to use the same group"):
            dist.batch_isend_irecv([op, other])

    run_ranks(2, body)


def test_a_batch_on_a_rank_outside_the_group():
    def body(rank):
        group = dist.new_group([0])
        ops = [dist.P2POp(dist.isend, np.ones(1), 0, group)]
        if rank == 0:
            ops.append(dist.P2POp(dist.irecv, np.ones(1), 0, group))
            return [work.wait() for work in dist.batch_isend_irecv(ops)]
        with pytest.warns(UserWarning, match="Running batch_isend_irecv on global"):
            return dist.batch_isend_irecv(ops)

    assert run_ranks(2, body) == [[True, True], []]
