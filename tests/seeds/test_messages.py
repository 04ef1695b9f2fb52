"""The tutorial's and the reference's point-to-point programs."""

import contextlib

import pytest

import allhands as dist
from harness.ranks import run_ranks


def test_send_and_recv(xp):
    def body(rank):
        tensor = xp.zeros(1)
        if rank == 0:
            tensor += 1
            dist.send(tensor=tensor, dst=1)
        else:
            assert dist.recv(tensor=tensor, src=0) == 0
        return tensor[0].item()

    assert run_ranks(2, body) == [1.0, 1.0]


def test_recv_from_any_rank(xp):
    def body(rank):
        tensor = xp.zeros(1)
        if rank == 2:
            dist.send(tensor + 7, dst=0)
            return None
        return (dist.recv(tensor), tensor[0].item()) if rank == 0 else None

    assert run_ranks(3, body) == [(2, 7.0), None, None]


def test_isend_and_irecv(xp):
    def body(rank):
        tensor = xp.zeros(1)
        if rank == 0:
            tensor += 1
            request = dist.isend(tensor=tensor, dst=1)
        else:
            request = dist.irecv(tensor=tensor, src=0)
        request.wait()
        assert request.is_completed()
        return tensor[0].item()

    assert run_ranks(2, body) == [1.0, 1.0]


def all_reduce_by_messages(send, recv):
    """The tutorial's ring: each rank's whole array goes round once, and is added up.

    Two buffers take turns: what came in last is sent on while the other is filled.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    outgoing, incoming = send + 0, send + 0
    total = send + 0
    for _ in range(size - 1):
        request = dist.isend(outgoing, right)
        dist.recv(incoming, left)
        total += incoming
        request.wait()
        outgoing, incoming = incoming, outgoing
    recv[:] = total


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 7, 100_000])  # the last goes in pieces
def test_ring_all_reduce_of_our_own(xp, size, count):
    def body(rank):
        send = xp.arange(count) * (rank + 1)
        recv, ours = xp.zeros_like(send), send + 0
        all_reduce_by_messages(send, recv)
        dist.all_reduce(ours)
        assert send.tolist() == (xp.arange(count) * (rank + 1)).tolist()
        assert recv.tolist() == ours.tolist()
        return recv[-1].item()

    assert run_ranks(size, body) == [(count - 1) * size * (size + 1) // 2] * size


@pytest.mark.parametrize("size", [2, 3])
def test_batch_isend_irecv(xp, size):
    def body(rank):
        send_tensor = xp.arange(2, dtype=xp.float32) + 2 * rank
        recv_tensor = xp.zeros(2, dtype=xp.float32)
        send_op = dist.P2POp(dist.isend, send_tensor, (rank + 1) % size)
        recv_op = dist.P2POp(dist.irecv, recv_tensor, (rank - 1 + size) % size)
        for request in dist.batch_isend_irecv([send_op, recv_op]):
            request.wait()
        return recv_tensor.tolist()

    expected = [
        [2.0 * ((rank - 1) % size), 2.0 * ((rank - 1) % size) + 1]
        for rank in range(size)
    ]
    assert run_ranks(size, body) == expected
    assert size != 2 or expected == [[2.0, 3.0], [0.0, 1.0]]  # as the page has it


def test_the_order_of_a_batch_matters_in_one_direction_only(xp):
    def body(rank):
        first, second = xp.zeros(1), xp.zeros(1)
        receives = [
            dist.P2POp(dist.irecv, array, 1 - rank) for array in (first, second)
        ]
        sends = [dist.P2POp(dist.isend, xp.ones(1) * n, 1 - rank) for n in (1, 2)]
        batch = receives + sends if rank == 0 else sends + receives
        for request in dist.batch_isend_irecv(batch):
            request.wait()
        return first.item(), second.item()

    assert run_ranks(2, body) == [(1.0, 2.0)] * 2


def test_batch_as_the_older_page_prints_it_is_refused(xp):
    """It sends int64 into float32: an error on both ranks instead of foreign bits."""

    def body(rank):
        recv_tensor = xp.zeros(2, dtype=xp.float32)
        send_op = dist.P2POp(dist.isend, xp.arange(2) + 2 * rank, 1 - rank)
        recv_op = dist.P2POp(dist.irecv, recv_tensor, 1 - rank)
        _, receiving = dist.batch_isend_irecv([send_op, recv_op])
        with pytest.raises(dist.CollectiveMismatchError, match=r"float32.*sent int64"):
            receiving.wait()
        # The send had left at once. Where the peer refused it, the end of the group
        # says so, unless the peer has left by then.
        with contextlib.suppress(dist.CollectiveMismatchError):
            dist.destroy_process_group()
        return recv_tensor.tolist()

    assert run_ranks(2, body) == [[0.0, 0.0]] * 2
