"""Bare connections: every byte comes, and their end is noticed."""

import threading

import numpy as np
import pytest

from allhands.bench.peers.connection import connect_all
from allhands.store import FileStore

LIMIT = 60


@pytest.fixture
def ends(tmp_path):
    """The connections of three ranks."""
    found = [None] * 3

    def join(rank):
        store = FileStore(str(tmp_path / "store"), 3)
        found[rank] = connect_all(store, rank, 3, "127.0.0.1")

    together(*[lambda rank=rank: join(rank) for rank in range(3)])
    yield found
    for connections in found:
        for connection in connections.values():
            connection.close()


def together(*calls):
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()


def memory(array):
    return array.ctypes.data, array.nbytes


def test_each_rank_has_a_connection_to_each_other(ends):
    assert [sorted(connections) for connections in ends] == [[1, 2], [0, 2], [0, 1]]
    for rank, other in ((0, 1), (0, 2), (1, 2), (2, 0)):
        sent, received = np.array([rank, other]), np.zeros(2, int)
        ends[rank][other].send(*memory(sent))
        ends[other][rank].recv(*memory(received))
        np.testing.assert_array_equal(received, sent)


@pytest.mark.parametrize("count", [1, 1000, 500_000])
def test_both_directions_at_once(ends, count):
    sent = [np.arange(count) + rank for rank in range(2)]
    received = [np.zeros(count, int) for _ in range(2)]

    def run(rank):
        connection = ends[rank][1 - rank]
        connection.exchange(*memory(sent[rank]), *memory(received[rank]))

    together(lambda: run(0), lambda: run(1))
    np.testing.assert_array_equal(received, sent[::-1])


def test_one_that_ended_is_noticed(ends):
    ends[1][0].close()
    array = np.zeros(1)
    with pytest.raises(OSError, match="the rank at the other end has ended"):
        ends[0][1].recv(*memory(array))
    with pytest.raises(OSError, match="the rank at the other end has ended"):
        ends[0][1].exchange(0, 0, *memory(array))
    array = np.zeros(10_000_000)
    with pytest.raises(OSError, match="the rank at the other end has ended"):
        ends[0][1].send(*memory(array))


def test_what_the_kernel_refuses_is_said(ends):
    with pytest.raises(OSError, match="Bad address"):
        ends[0][1].send(1, 1)
