"""ALLHANDS_CHECK=content: ranks that are threads compare what must be the same."""

import threading
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.arrays import as_buffer
from allhands.backends.content import compare, hash_of, odd_ones
from allhands.backends.followed import FollowedWork
from allhands.backends.front import FrontCommunicator
from allhands.backends.native import NativeCommunicator
from allhands.backends.rows import memory_of
from allhands.groups.world import current
from harness.ranks import BACKEND, LIMIT, outcomes, run_ranks

SIZE = 3
native_alone = pytest.mark.skipif(BACKEND != "native", reason="of the native engine")


class Corrupting(FrontCommunicator):
    """Flips a bit of what `victim` gets, in the first array of its output."""

    victim = 1

    def __init__(self, options, _):
        super().__init__(NativeCommunicator(options))
        self.rank = options.group_rank

    def submit(self, call):
        work = self.communicator.submit(call)
        if self.rank != self.victim or not call.outputs():
            return work
        first = call.outputs()[0]
        while isinstance(first, list):
            first = first[0]

        def flip():
            memory_of(as_buffer(first, writable=True))[0] ^= 4

        return FollowedWork(work, flip, call.outputs())


@pytest.fixture(autouse=True)
def corrupting(registered):
    registered("corrupting", Corrupting, extended_api=True, devices="cpu")


@pytest.fixture
def checking(monkeypatch):
    monkeypatch.setenv("ALLHANDS_CHECK", "content")


def ones():
    return np.ones(4, np.float32)


def many():
    return [ones() for _ in range(SIZE)]


def wide():
    return np.ones(4 * SIZE, np.float32)


ALL = range(SIZE)
CALLS = {
    "all_reduce": (ALL, lambda r: dist.all_reduce(ones())),
    "broadcast": (ALL, lambda r: dist.broadcast(ones(), 0)),
    "all_gather": (ALL, lambda r: dist.all_gather(many(), ones())),
    "all_gather_single": (ALL, lambda r: dist.all_gather_single(wide(), ones())),
    "gather": (ALL, lambda r: dist.gather(ones(), many() if r == 1 else None, 1)),
    "scatter": (ALL, lambda r: dist.scatter(ones(), many() if r == 0 else None, 0)),
    "all_to_all": (ALL, lambda r: dist.all_to_all(many(), many())),
    "all_to_all_single": (ALL, lambda r: dist.all_to_all_single(wide(), wide())),
    "all_reduce_coalesced": (
        ALL,
        lambda r: dist.group.WORLD.allreduce_coalesced([ones(), wide()]).wait(),
    ),
}
ODD = {"gather": [0, 1], "scatter": [0, 1], "all_to_all": [0, 1]}
ODD["all_to_all_single"] = [0, 1]


@pytest.mark.parametrize("op", CALLS)
def test_a_bit_that_one_rank_has_otherwise_is_found(op, checking):
    _, call = CALLS[op]
    for rank, error in enumerate(outcomes(SIZE, call, backend="corrupting")):
        assert isinstance(error, dist.ContentMismatchError), (rank, error)
        assert error.ranks == ODD.get(op, [1])
        text = str(error)
        assert text.startswith(f"{op} #1 on group '0' ({__file__}:")
        assert "what must be the same on all ranks is not: rank" in text
        assert f"; odd: {error.ranks}; see that nothing writes" in text


def test_after_it_the_group_works_on_and_aborts_nothing(checking):
    def body(rank):
        aborted = []
        dist.group.WORLD.register_abort_hook(1, lambda: aborted.append(1))
        for number in (1, 2):
            told = f"all_reduce #{number}"
            with pytest.raises(dist.ContentMismatchError, match=told):
                dist.all_reduce(ones())
        dist.barrier()
        with pytest.raises(dist.ContentMismatchError, match="broadcast #4"):
            dist.broadcast(ones(), 0)
        return aborted

    assert run_ranks(SIZE, body, backend="corrupting") == [[]] * SIZE


def test_of_two_ranks_none_is_outvoted(checking):
    for error in outcomes(2, CALLS["all_reduce"][1], backend="corrupting"):
        assert error.ranks == [0, 1]
        assert "rank 0 " in str(error)
        assert "rank 1 " in str(error)


def test_each_form_of_a_call_is_compared(checking):
    """Strided, async, persistent, in a coalescing block, of torch, of objects."""

    def body(rank):
        strided = np.ones((4, 6), np.float32)[::2, 1::3]
        forms = [lambda: dist.all_reduce(strided)]
        forms.append(lambda: dist.all_reduce(ones(), async_op=True).wait())
        forms.append(dist.all_reduce_init(ones()))
        forms.append(lambda: dist.all_gather_object([None] * SIZE, "x"))

        def block():
            with dist._coalescing_manager():
                dist.all_reduce(ones())
                dist.all_reduce(ones())

        forms.append(block)
        for form in forms:
            with pytest.raises(dist.ContentMismatchError):
                form()
        request = dist.all_reduce_init(ones())
        request.start()
        with pytest.raises(dist.ContentMismatchError):
            request.wait()

    run_ranks(SIZE, body, backend="corrupting")


def test_work_that_was_compared_tells_so(checking):
    def body(rank):
        told = threading.Event()
        work = dist.all_reduce(ones(), async_op=True)
        work.add_done_callback(told.set)
        with pytest.raises(dist.ContentMismatchError):
            work.wait()
        assert told.wait(LIMIT)
        assert work.is_completed()
        assert not work.is_success()
        assert isinstance(work.exception(), dist.ContentMismatchError)
        with pytest.raises(dist.ContentMismatchError):
            work.get_future().wait()

    run_ranks(2, body, backend="corrupting")


def test_ranks_may_wait_in_any_order(checking):
    """Also for a message that the other sends after its own wait."""

    def body(rank):
        arrays = [np.full(2, rank + 1.0) for _ in range(4)]
        works = [dist.all_reduce(array, async_op=True) for array in arrays]
        token = np.zeros(1)
        if rank == 0:
            dist.recv(token, 1)
        for work in works if rank else works[::-1]:
            work.wait()
        if rank == 1:
            dist.send(token, 0)
        work = dist.broadcast(token, 0, async_op=True)
        assert work.wait(timedelta(seconds=60))
        return [array.tolist() for array in arrays]

    assert run_ranks(2, body) == [[[3.0, 3.0]] * 4] * 2


@native_alone
def test_the_numbers_of_the_group_are_as_without_it(monkeypatch):
    def body(rank):
        for op, (_, call) in CALLS.items():
            if op != "gather":
                call(rank)
        dist.scan(ones(), ones())
        dist.barrier()
        entries = dist.group.WORLD.communicator.flight_entries()
        numbers = [(each["sequence"], each["op"]) for each in entries]
        count = getattr(dist.group.WORLD.communicator, "_num_collectives", len(entries))
        return numbers, count == len(entries)

    plain = run_ranks(SIZE, body)
    monkeypatch.setenv("ALLHANDS_CHECK", "content")
    assert run_ranks(SIZE, body) == plain
    assert all(is_counted for _, is_counted in plain)


@native_alone
def test_without_the_setting_nothing_stands_in_front_of_a_group(monkeypatch):
    def body(rank):
        world = dist.group.WORLD
        assert isinstance(world.get_backend("cpu"), NativeCommunicator)
        return type(world.communicator)

    assert run_ranks(2, body) == [NativeCommunicator] * 2
    monkeypatch.setenv("ALLHANDS_CHECK", "content")
    assert NativeCommunicator not in run_ranks(2, body)
    assert run_ranks(1, body) == [NativeCommunicator]
    monkeypatch.setenv("ALLHANDS_CHECK", "contents")
    told = "ALLHANDS_CHECK is 'contents': it must be none or content or calls"
    with pytest.raises(AssertionError, match=told):
        run_ranks(1, body)


def test_wrong_calls_are_refused_as_without_it(checking):
    def body(rank):
        frozen = ones()
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="is read-only"):
            dist.all_reduce(frozen)
        with pytest.raises(dist.CollectiveMismatchError):
            dist.all_reduce(np.ones(rank + 1))
        dist.all_reduce(ones())
        dist.broadcast(ones(), 0)

    run_ranks(2, body, backend="native")


def test_hashes_are_of_elements_wherever_they_lie():
    whole = np.arange(24, dtype=np.int32).reshape(4, 6)
    assert hash_of([whole[:, ::2]]) == hash_of([whole[:, ::2].copy()])
    assert hash_of([whole]) == hash_of([whole[:2], whole[2:]])
    assert hash_of([whole.T]) != hash_of([whole])
    assert hash_of([np.empty(0)]) != 0


def test_who_is_odd():
    assert odd_ones([7, 7, 7]) == []
    assert odd_ones([7, 8, 7]) == [1]
    assert odd_ones([7, 8]) == [0, 1]
    assert odd_ones([7, 8, 7, 9]) == [1, 3]
    sent, received = np.full((3, 3), 5), np.full((3, 3), 5)
    received[:, 2] = 6  # what rank 2 sent came otherwise everywhere
    found = compare("all_gather", np.hstack([sent, received]))
    assert found.ranks == [2]
    assert found.text == (
        "rank 2 sent 0000000000000005, ranks [0-2] received something else, rank 0 "
        "0000000000000006"
    )


def test_a_callback_that_ends_its_thread_leaves_later_operations_compared(
    checking, monkeypatch
):
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda it: told.append(it.exc_type))

    class Leaving(BaseException):
        pass

    def leave():
        raise Leaving

    added = threading.Barrier(SIZE)

    def body(rank):
        array, is_last = ones(), rank == SIZE - 1
        if is_last:
            added.wait(LIMIT)  # until then the operation ends nowhere
        work = dist.all_reduce(array, async_op=True)
        if not is_last:
            work.add_done_callback(leave)
            added.wait(LIMIT)
        work.wait()
        dist.all_reduce(array)
        return float(array[0])

    assert run_ranks(SIZE, body) == [9.0] * SIZE
    assert told == [Leaving] * (SIZE - 1)


def test_the_longest_limit_of_a_wait_can_be_given(checking):
    waits = threading.Event()

    def body(rank):
        if rank == 0:
            waits.wait(LIMIT)
        work = dist.all_reduce(ones(), async_op=True)
        if rank == 1:  # mostly in its wait by then, which is all that matters
            threading.Timer(0.05, waits.set).start()
        work.wait(timedelta.max)

    run_ranks(SIZE, body)


@native_alone
def test_the_last_hashes_may_still_be_read_where_a_rank_leaves(checking, monkeypatch):
    """They are on their way to other hosts; without a grace the group failed there."""
    graces = {}
    plain = NativeCommunicator.close

    def close(self, grace):
        graces.setdefault(current().whole.rank(), []).append(grace)
        plain(self, grace)

    def body(rank):
        group = dist.new_group()
        dist.all_reduce(ones(), group=group)
        dist.barrier()
        monkeypatch.setattr(NativeCommunicator, "close", close)
        dist.barrier()
        dist.destroy_process_group(group)
        dist.barrier()
        monkeypatch.setattr(NativeCommunicator, "close", plain)
        dist.barrier()

    run_ranks(SIZE, body)
    assert len(graces) == SIZE
    assert all(len(told) == 2 and min(told) > 0 for told in graces.values())
