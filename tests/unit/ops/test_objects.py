"""Objects between ranks; ranks are threads."""

import pickle
import threading
import time

import numpy as np
import pytest

import allhands as dist
from allhands.ops import object_exchange, serialization
from harness.pace import patient
from harness.ranks import LIMIT, outcomes, run_ranks

OUTSIDE = dist.GroupMember.NON_GROUP_MEMBER


def samples(rank):
    """Objects of every size: no buffer, several large ones, an array not contiguous."""
    return [
        None,
        {"rank": rank},
        "x" * (200_000 * rank),
        [np.full(100_000, rank + n) for n in range(rank + 1)],
        np.asfortranarray(np.arange(90_000.0).reshape(300, 300) + rank),
        np.arange(200_000)[::-2],
        bytearray(b"b" * 100_000),
        (),
    ]


def same(one, other):
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other) and one.dtype == other.dtype
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("which", range(len(samples(0))))
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_collective(size, which):
    def body(rank):
        expected = [samples(r)[which] for r in range(size)]
        mine, last = expected[rank], size - 1

        gathered = [0] * (size + 1)
        dist.all_gather_object(gathered, mine)
        assert same(gathered, [*expected, 0])

        gathered = [0] * size if rank == last else None
        dist.gather_object(mine, gathered, group_dst=last)
        assert rank != last or same(gathered, expected)

        objects = samples(last) if rank == last else [7] * len(samples(0))
        dist.broadcast_object_list(objects, last)
        assert same(objects, samples(last))

        output = [0, 1]
        dist.scatter_object_list(output, expected if rank == 0 else None)
        assert same(output, [mine, 1])

    run_ranks(size, body)


def test_send_and_receive():
    def body(rank):
        if rank:
            dist.send_object_list(samples(rank), 0)
            dist.barrier()  # or "any source" might be the empty list
            dist.send_object_list([], group_dst=0)
            return None
        sources = set()
        for source in (1, None):
            objects = [0] * len(samples(0))
            found = dist.recv_object_list(objects, source)
            assert same(objects, samples(found))
            sources.add(found)
        dist.barrier()
        for source in (1, 2):
            assert dist.recv_object_list([], group_src=source) == source
        return sources

    assert run_ranks(3, body)[0] == {1, 2}


def test_groups_roots_and_ranks():
    def body(rank):
        group = dist.new_group([2, 1], sort_ranks=False)
        if rank == 0:
            return None
        objects = [rank]
        dist.broadcast_object_list(objects, 1, group)
        found = [None, None]
        dist.all_gather_object(found, rank * 10, group)
        with pytest.raises(ValueError, match="Global rank 0 is not part of group"):
            dist.broadcast_object_list(objects, group=group)
        if rank == 1:
            dist.send_object_list(["hello"], 2, group)
        else:
            assert dist.recv_object_list(objects, None, group) == 1
        return objects, found

    assert run_ranks(3, body)[1:] == [([1], [20, 10]), (["hello"], [20, 10])]


def test_arguments_are_checked_before_anything_is_sent():
    def body(rank):
        peer, full = 1 - rank, [0, 0]
        with pytest.raises(IndexError, match="has 1 entries, the group has 2 ranks"):
            dist.all_gather_object([0], 1)
        with pytest.raises(TypeError, match="of type list"):
            dist.all_gather_object((0, 0), 1)
        with pytest.raises(TypeError, match="of type list"):
            dist.broadcast_object_list((0, 0), peer)
        given = None if rank == 0 else full
        word = "must be specified on dest" if rank == 0 else "must NOT be specified on"
        with pytest.raises(ValueError, match=word):
            dist.gather_object(1, given, 0)
        with pytest.raises(IndexError, match="object_gather_list has 1 entries"):
            dist.gather_object(1, [0], rank)
        for wrong in ([], (1,)):
            with pytest.raises(ValueError, match="to be a list of size at least 1"):
                dist.scatter_object_list(wrong, full, rank)
        with pytest.raises(ValueError, match="must provide non-None scatter_object"):
            dist.scatter_object_list([0], None, rank)
        with pytest.raises(ValueError, match="has 3 entries, it needs one per rank: 2"):
            dist.scatter_object_list([0], [1, 2, 3], rank)
        with pytest.raises(RuntimeError, match="invalid root rank: 2"):
            dist.broadcast_object_list(full, 2)
        with pytest.raises(ValueError, match="should not be the same as the rank"):
            dist.send_object_list(full, rank)
        with pytest.raises(ValueError, match=r"must be in \[0, 2\)"):
            dist.recv_object_list(full, 2)
        with pytest.raises(ValueError, match="Must specify global_rank or group_rank"):
            dist.send_object_list(full)
        with pytest.raises(TypeError, match="of type list"):
            dist.recv_object_list((0,), peer)
        with pytest.raises(TypeError, match="of type list"):
            dist.send_object_list("01", peer)
        dist.all_gather_object(full, rank)
        return full

    assert run_ranks(2, body) == [[0, 1]] * 2


def test_who_only_gives_objects_may_give_a_tuple():
    def body(rank):
        given = [("a", {"b": 1}), [None, None]][rank]
        dist.broadcast_object_list(given)
        if rank == 0:
            dist.send_object_list((1, 2), dst=1)
            return list(given)
        with pytest.raises(TypeError, match="of type list, but got <class 'tuple'>"):
            dist.recv_object_list((None, None), src=0)
        dist.recv_object_list(got := [None, None], src=0)
        assert got == [1, 2]
        return given

    assert run_ranks(2, body) == [["a", {"b": 1}]] * 2


def test_ranks_outside_the_group():
    def body(rank):
        for call in (
            lambda: dist.all_gather_object([], 1, OUTSIDE),
            lambda: dist.gather_object(1, None, 0, OUTSIDE),
            lambda: dist.broadcast_object_list([], 0, OUTSIDE),
            lambda: dist.scatter_object_list([], None, 0, OUTSIDE),
        ):
            with pytest.warns(UserWarning, match="on global rank 0 which does not"):
                assert call() is None
        for call in (dist.send_object_list, dist.recv_object_list):
            with pytest.raises(ValueError, match="Invalid process group specified"):
                call([1], 0, OUTSIDE)

    run_ranks(1, body)


UNPICKLABLE = threading.Lock()


NAMES = ["all_gather", "gather", "broadcast", "scatter"]
COLLECTIVES = [
    lambda rank, obj: dist.all_gather_object([0, 0], obj),
    lambda rank, obj: dist.gather_object(obj, [0, 0] if rank == 1 else None, 1),
    lambda rank, obj: dist.broadcast_object_list([obj]),
    lambda rank, obj: dist.scatter_object_list([0], [obj, obj]),
]
PAYLOAD = np.ones(100_000)
CALL_NAMES = [*NAMES, "send"]
CALLS = [
    lambda rank: dist.all_gather_object([0, 0], PAYLOAD),
    lambda rank: dist.gather_object(PAYLOAD, [0, 0] if rank == 1 else None, 1),
    lambda rank: dist.broadcast_object_list([PAYLOAD]),
    lambda rank: dist.scatter_object_list([0], [0, PAYLOAD]),
    lambda rank: (dist.recv_object_list if rank else dist.send_object_list)(
        [PAYLOAD], 1 - rank
    ),
]


@pytest.mark.parametrize("call", COLLECTIVES, ids=NAMES)
def test_what_cannot_be_pickled_is_told_to_all(call):
    def body(rank):
        call(rank, UNPICKLABLE if rank == 0 else 1)

    def both(rank):
        try:
            body(rank)
        finally:
            dist.barrier()  # the group still works

    mine, other = outcomes(2, both)
    assert isinstance(mine, TypeError)
    assert "pickle" in str(mine)
    assert isinstance(other, dist.DistBackendError)
    assert "ranks [0] of group '0' could not pickle" in str(other)


class Ends:
    """Ends the program, or what else, while it is pickled."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("call", COLLECTIVES, ids=NAMES)
def test_whatever_ends_pickling_ends_it_at_once_and_is_told(call, kind):
    """The rank that raises does not wait for the others, which come later."""
    has_raised = threading.Event()

    def body(rank):
        if rank == 0:
            with pytest.raises(kind, match="of its own"):
                call(rank, Ends(kind("of its own")))
            has_raised.set()
        else:
            assert has_raised.wait(LIMIT)
            start = time.monotonic()
            with pytest.raises(dist.DistBackendError, match="could not pickle"):
                call(rank, 1)
            assert time.monotonic() - start < patient(1, start)
        found = [None, None]
        dist.all_gather_object(found, rank)  # the group still works
        return found

    assert run_ranks(2, body) == [[0, 1]] * 2


def test_what_cannot_be_pickled_is_not_sent():
    def body(rank):
        if rank == 0:
            with pytest.raises(SystemExit):
                dist.send_object_list([Ends(SystemExit())], 1)
            dist.send_object_list(["next"], 1)
            return None
        objects = [0]
        dist.recv_object_list(objects, 0)
        return objects

    assert run_ranks(2, body) == [None, ["next"]]


@pytest.mark.parametrize("call", CALLS, ids=CALL_NAMES)
def test_an_exception_out_of_nowhere_leaves_no_peer_waiting(call, monkeypatch):
    """As out of a signal handler, on rank 1, when peers have begun."""

    def room_for(numbers):
        if numbers and dist.get_rank() == 1:
            raise KeyboardInterrupt
        return serialization.room_for(numbers)

    monkeypatch.setattr(object_exchange, "room_for", room_for)

    def body(rank):
        if rank == 1:
            with pytest.raises(KeyboardInterrupt):
                call(rank)
            return
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError, match=r"ended in the middle: Keyb"):
            call(rank)
        assert time.monotonic() - start < patient(5, start)

    run_ranks(2, body)


class Plain:
    """A class that weights_only does not know."""


@pytest.mark.parametrize("allowed", [True, False])
def test_weights_only(allowed):
    """What is no data raises where it arrives, and only there."""

    def body(rank):
        array = np.arange(30_000.0).reshape(-1, 3)[::2] + rank
        mine = {"rank": rank, "array": array} if allowed else Plain()
        expected = [{"rank": r, "array": array - rank + r} for r in range(2)]
        gathered, given, received = [0, 0], [0], [0]

        def perform(call, *arguments):
            if allowed:
                return call(*arguments)
            name = f"{Plain.__module__}.Plain"
            with pytest.raises(pickle.UnpicklingError, match=f"{name} is not allowed"):
                call(*arguments)

        perform(dist.all_gather_object, gathered, mine, None, True)
        if allowed:
            assert [one["rank"] for one in gathered] == [0, 1]
            assert np.array_equal(gathered[1]["array"], expected[1]["array"])
        if rank:
            dist.gather_object(mine, None, 0, None, None, True)
            perform(dist.broadcast_object_list, received, 0, None, None, None, True)
            dist.send_object_list([mine], 0, None, None, None, False, True)
        else:
            perform(dist.gather_object, mine, gathered, 0, None, None, True)
            dist.broadcast_object_list([mine], 0, None, None, None, True)
            perform(dist.recv_object_list, received, 1, None, None, None, False, True)
        inputs = [mine, mine] if rank == 0 else None
        perform(dist.scatter_object_list, given, inputs, 0, None, None, True)
        if not allowed:
            assert gathered + given + received == [0] * 4
        else:
            assert given[0]["rank"] == 0
            assert received[0]["rank"] == 1 - rank
        dist.barrier()

    run_ranks(2, body)


def test_lists_of_different_lengths_are_a_mismatch():
    def body(rank):
        with pytest.raises(
            dist.CollectiveMismatchError,
            match=r"^broadcast_object_list: .*(count 2.*count 3|3.*2)",
        ):
            dist.broadcast_object_list([0] * (2 + rank))
        call, peer = (
            (dist.recv_object_list if rank else dist.send_object_list),
            1 - rank,
        )
        match = rf"^{call.__name__}: .*count 3"
        with pytest.raises(dist.CollectiveMismatchError, match=match):
            call([np.zeros(100_000)] * (2 + rank), peer)
        dist.barrier()
        objects = [rank]
        call(objects, peer)
        return objects

    assert run_ranks(2, body) == [[0], [0]]


def test_an_array_arrives_in_memory_of_its_own_and_can_be_written():
    def body(rank):
        array = np.zeros(100_000)
        parts = [0, 0]
        dist.all_gather_object(parts, array)
        for part in parts:
            part += 1
        return float(array.sum())

    assert run_ranks(2, body) == [0.0, 0.0]


@pytest.mark.parametrize("call", CALLS, ids=CALL_NAMES)
def test_a_rank_without_memory_lets_its_peer_know(call, monkeypatch):
    def room_for(numbers):
        if numbers and dist.get_rank() == 1:
            raise MemoryError("none left")
        return serialization.room_for(numbers)

    monkeypatch.setattr(object_exchange, "room_for", room_for)

    def body(rank):
        try:
            call(rank)
        finally:
            dist.barrier()  # the group still works

    peer, mine = outcomes(2, body)
    assert isinstance(peer, dist.CollectiveMismatchError)
    assert isinstance(mine, MemoryError)
