"""Ranks that make their groups in different orders; ranks are threads."""

import contextlib
import re
import threading
import time
from functools import partial

import numpy as np
import pytest

import allhands as dist
from allhands.groups import agreed_calls
from allhands.store import HashStore
from harness.pace import patient
from harness.ranks import LIMIT, outcomes, run_ranks
from harness.stores import DictStore
from harness.worlds import total

Mismatch = dist.CollectiveMismatchError


USES = {
    "all_reduce": total,
    "async_op": lambda group: dist.barrier(group, async_op=True).wait(),
    "send": lambda group: dist.send(np.ones(9999), 1, group),
    "recv": lambda group: dist.recv(np.ones(3), 1, group),
    "recv from any": lambda group: dist.recv(np.ones(3), group=group),
    "irecv": lambda group: dist.irecv(np.ones(3), 1, group).wait(),
    "objects": lambda group: dist.all_gather_object([0, 0], 0, group),
}


@pytest.mark.parametrize("is_waiting", [True, False])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_both_sides_get_both_calls(use, is_waiting):
    def body(rank):
        if rank == 0:
            group = dist.new_group([0, 1])
            dist.barrier()
            if not is_waiting:
                dist.barrier()
            start = time.monotonic()
            try:
                use(group)
            finally:
                assert time.monotonic() - start < patient(1, start)
        else:
            dist.barrier()
            if is_waiting:
                time.sleep(0.05)  # so that rank 0 waits, most of the time
            try:
                dist.new_group([1])
            finally:
                if not is_waiting:
                    dist.barrier()

    for error in outcomes(2, body):
        assert isinstance(error, Mismatch), error
        assert "rank 0's call #1 was new_group([0, 1])" in str(error)
        assert "rank 1's was new_group([1])" in str(error)


def test_a_later_group_with_the_rank_that_raised_is_broken_too():
    """Rank 2 makes [0, 2] and then [1, 2], rank 1 begins with [1, 2]."""

    def body(rank):
        if rank == 2:
            groups = dist.new_group([0, 2]), dist.new_group([1, 2])
            dist.barrier()
            dist.barrier()
            dist.barrier()
            for group in groups:  # rank 0 raised, and so did rank 1
                with pytest.raises(Mismatch, match=r"rank 2's call #1 was new_group"):
                    total(group)
            return total()
        dist.barrier()
        if rank == 0:
            dist.barrier()
        message = r"rank 2's call #1 .*\(\[0, 2\]\), rank 1's was new_group\(\[1, 2\]\)"
        with pytest.raises(Mismatch, match=message) as caught:
            dist.new_group([0, 2] if rank == 0 else [1, 2])
        assert caught.value.ranks == [[1], [2]][rank]
        dist.barrier()
        if rank == 1:
            dist.barrier()
        return total()

    assert run_ranks(3, body) == [3, 3, 3]


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ({"group_desc": "dp"}, {"group_desc": "tp"}, "[0, 1], group_desc='dp'"),
        ({"backend": "native"}, {}, "[0, 1], backend='native'"),
        ({"ranks": [1, 0], "sort_ranks": False}, {"ranks": [0, 1]}, "([1, 0])"),
    ],
)
def test_what_else_must_be_alike(one, other, text):
    def body(rank):
        group = dist.new_group(**(other if rank else one))
        dist.barrier(group)

    for error in outcomes(2, body):
        assert isinstance(error, Mismatch), error
        assert text in str(error)


def test_limits_and_devices_may_differ():
    def body(rank):
        limit = dist.default_pg_timeout * (1 + rank)
        return total(dist.new_group(timeout=limit, device_id=rank))

    assert run_ranks(2, body) == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: dist.new_group(**o),
        lambda **o: dist.new_group(use_local_synchronization=True, **o),
        lambda **o: dist.split_group(split_ranks=[[0, 1]], **o),
    ],
    ids=["new_group", "local", "split_group"],
)
def test_a_call_that_one_rank_refused_can_be_made_again(make):
    """It does not count, so the groups of the ranks are the same ones."""

    def body(rank):
        if rank == 1:
            with pytest.raises(TypeError, match="takes NativeOptions"):
                make(pg_options=object())
        for group in make(), make():
            assert total(group) == 1

    run_ranks(2, body)


def test_a_call_that_all_its_ranks_refused_counts():
    """They go on, as ranks do that are outside its group and refused nothing."""

    def body(rank):
        with pytest.raises(TypeError) if rank < 2 else contextlib.nullcontext():
            dist.new_group([0, 1], pg_options=object())
        group = dist.new_group([0, 1], group_desc="other")
        return dist.GroupMember.NON_GROUP_MEMBER if rank == 2 else total(group)

    assert run_ranks(3, body)[:2] == [1, 1]


def test_a_backend_that_only_another_rank_knows():
    store = DictStore()

    def body(rank):
        dist.init_process_group(store=store, rank=rank, world_size=2)
        dist.new_group()
        dist.barrier()
        if rank == 0:
            [key] = [key for key in store.list_keys() if re.search("groups/.*/1$", key)]
            store.set(key[:-1] + "2", '[[0, [0, 1], "theirs", null]]')
        dist.barrier()
        with pytest.raises(Mismatch, match=r"\[0, 1\], backend='theirs'"):
            dist.new_group()
        assert total(dist.new_group()) == 1

    run_ranks(2, body, init=False)


def test_ranks_that_call_the_backend_of_the_world_otherwise():
    store = HashStore()

    def body(rank):
        backend = [None, "native", "cpu:native"][rank]
        dist.init_process_group(backend, store=store, rank=rank, world_size=3)
        assert total(dist.new_group()) == 3

    run_ranks(3, body, init=False)


def test_later_calls_succeed():
    def body(rank):
        made = []
        for _ in range(3):
            with contextlib.suppress(Mismatch):
                made.append(dist.new_group([rank]))
            dist.barrier()
        group = dist.new_group([0, 1])
        return len(made), group.group_name, total(group)

    found = run_ranks(2, body)
    assert sum(num_made for num_made, _, _ in found) == 3  # who came first
    assert [rest for _, *rest in found] == [["4", 1]] * 2


class CountingStore(DictStore):
    num_compared = 0

    def compare_set(self, key, *arguments):
        self.num_compared += "groups/" in key
        return super().compare_set(key, *arguments)


def num_compared(num_groups, size=4):
    """How often ranks ask the store, the others after rank 0."""
    store = CountingStore()

    def body(rank):
        dist.init_process_group(store=store, rank=rank, world_size=size)
        dist.init_device_mesh("cpu", (2, 2))
        dist.new_group([0, 1], use_local_synchronization=True)
        dist.split_group(split_ranks=[[0, 1], [2, 3]])
        if rank:
            dist.barrier()
        for _ in range(num_groups):
            dist.new_group([0, 1])
        if rank == 0:
            dist.barrier()
        dist.barrier()  # the host's page is rank 0's

    run_ranks(size, body, init=False)
    return store.num_compared


def test_what_it_costs():
    """A look at the host's page for each rank, and one comparison for each call."""
    assert num_compared(0) == 0
    assert num_compared(5) == 4 + 5


def test_what_it_costs_a_rank_that_is_far_behind(monkeypatch):
    monkeypatch.setattr(agreed_calls, "_NUM_WORDS", 8)
    assert num_compared(16) > 4 + 16  # the first rank after rank 0 asks again


def no_memory(*_):
    raise OSError("no such memory here")


def test_without_a_page_every_rank_asks_the_store(monkeypatch):
    monkeypatch.setattr("os.memfd_create", no_memory)
    assert num_compared(5) == 4 * 5
    test_both_sides_get_both_calls(total, is_waiting=False)


@pytest.mark.parametrize("seed", range(5))
def test_a_mismatch_is_found_though_ranks_of_the_host_agreed(seed):
    """One of four ranks makes another group, whenever it comes."""
    random = np.random.default_rng(seed)
    order = random.permutation(4).tolist()
    deviant = int(random.integers(4))
    turn = threading.Condition()
    errors = {}

    def body(rank):
        with turn:
            assert turn.wait_for(lambda: order[0] == rank, LIMIT)
            for number in range(3):
                members = [0, 1, 2] if (rank, number) == (deviant, 2) else [0, 1]
                try:
                    dist.new_group(members)
                except Mismatch as error:
                    errors[rank] = str(error)
            order.append(order.pop(0))
            turn.notify_all()

    come_late = order[order.index(deviant) :]
    run_ranks(4, body)
    # The deviant and all after it; where it was the first, all others.
    assert [*errors] == (come_late if len(come_late) < 4 else come_late[1:])
    for text in errors.values():
        assert f"rank {deviant}'s" in text
        assert "call #3 was new_group(" in text


NO_CALLS = [
    b"\xff",
    b"7",
    b"[]",
    b"[7]",
    b'[["0", [0], "native", null]]',
    b'[[0, "0", "native", null]]',
    b'[[0, [2], "native", null]]',
    b"[[0, [0], 1, null]]",
    b'[[0, [0], "native", 1]]',
    b'[[0, [0], "native"]]',
]


@pytest.mark.parametrize("text", NO_CALLS)
def test_bytes_that_no_rank_wrote_are_no_call(text):
    store = DictStore()

    def body(rank):
        dist.init_process_group(store=store, rank=rank, world_size=2)
        dist.new_group([0])
        dist.barrier()
        if rank == 0:
            [first] = [
                key for key in store.list_keys() if re.search("groups/.*/1$", key)
            ]
            store.set(first[:-1] + "2", text)
        dist.barrier()
        with pytest.raises(dist.DistStoreError, match="call #2 is none: b'"):
            dist.new_group([0])

    run_ranks(2, body, init=False)


class StoreThatCannot(DictStore):
    def compare_set(self, *arguments):
        raise NotImplementedError


class StoreThatIsGone(DictStore):
    def compare_set(self, key, *arguments):
        if "groups/" in key:  # the world has been made
            raise dist.DistNetworkError("connection lost")
        return super().compare_set(key, *arguments)


@pytest.mark.parametrize("kind", [StoreThatCannot, StoreThatIsGone])
def test_without_the_store_groups_work_unchecked(kind):
    store = kind()

    def body(rank):
        dist.init_process_group(store=store, rank=rank, world_size=3)
        lists = [[0, 1], [0, 1, 2]]
        made = [dist.new_group(ranks) for ranks in (lists if rank else lists[::-1])]
        pair, all_three = made if rank else made[::-1]
        return total(pair) if rank < 2 else 1, total(all_three)

    assert run_ranks(3, body, init=False) == [(1, 3)] * 3


PARENT = [0, 2, 3, 5]
PARTS = [[0, 2], [3, 5]]


@pytest.mark.parametrize("others_call", [True, False])
def test_subgroups_of_a_group_need_the_other_ranks_no_more_than_they_mind_them(
    others_call,
):
    def body(rank):
        parent = dist.new_group(PARENT)
        if rank in PARENT:
            mine, _ = dist.new_subgroups(2, group=parent)
            assert total(mine) == (2 if rank < 3 else 8)
        elif others_call:
            assert [dist.new_group(part) for part in PARTS] == [-100, -100]
        everyone = dist.new_group()
        assert total(everyone) == 15
        return everyone.group_name

    assert len(set(run_ranks(6, body))) == 1


def test_a_group_that_a_part_made_does_not_hide_a_mismatch():
    def body(rank):
        parent = dist.new_group([0, 1])
        if rank < 2:
            dist.new_subgroups(1, group=parent)
        dist.barrier()
        dist.new_group([0, 1] if rank == 0 else [0, 2])

    errors = outcomes(3, body)
    assert sum(isinstance(error, Mismatch) for error in errors) in (1, 2)


def in_turns(size, order, calls):
    """Let the ranks make `calls[rank]`, one after the other as `order` says."""
    turn = threading.Condition()
    left = list(order)

    def body(rank):
        for call in calls[rank]:
            with turn:
                assert turn.wait_for(lambda: not left or left[0] == rank, LIMIT)
                left.pop(0)
                try:
                    call()
                except BaseException:
                    left.clear()
                    raise
                finally:
                    turn.notify_all()
        return dist.new_group().group_name

    return run_ranks(size, body)


@pytest.mark.parametrize("seed", range(60))
def test_calls_of_a_part_in_any_order_of_events(seed):
    """Programs of groups of the world and of a part of it, some of the same members."""
    random = np.random.default_rng(seed)
    size, parent, members = 4, [0, 1, 2], [[0], [1], [2]]
    others_call = bool(seed % 2)
    calls = [[] for _ in range(size)]
    for rank in range(size):
        calls[rank].append(lambda: parents.setdefault(dist.get_rank(), make(parent)))
    parents = {}

    def make(ranks):
        return dist.new_group(ranks)

    def divide():
        dist.new_subgroups(1, group=parents[dist.get_rank()])

    for step in random.integers(5, size=8):
        for rank in range(size):
            if step < 3:
                calls[rank].append(partial(make, members[step]))
            elif step == 3:
                calls[rank].append(partial(make, [0, 1, 2, 3]))
            elif rank in parent:
                calls[rank].append(divide)
            elif others_call:
                calls[rank] += [partial(make, part) for part in members]
    order = random.permutation(
        [rank for rank in range(size) for _ in calls[rank]]
    ).tolist()
    assert len(set(in_turns(size, order, calls))) == 1


@pytest.mark.parametrize("first", [None, "gloo"])
def test_a_rank_that_asks_for_another_backend_is_not_waited_for(first):
    """Gloo's ranks wait for each other as the group is made, native ones later."""
    pytest.importorskip("torch")
    other = "gloo" if first is None else None

    def body(rank):
        start = time.monotonic()
        with pytest.raises(Mismatch, match=r"call #1 was new_group.*backend='gloo'"):
            dist.barrier(dist.new_group(backend=other if rank else first))
        assert time.monotonic() - start < patient(5, start)
        return total(dist.new_group(backend="gloo")), total()

    assert run_ranks(2, body) == [(1, 1)] * 2


def test_two_ranks_that_differ_do_not_wait_for_a_third():
    pytest.importorskip("torch")

    def body(rank):
        if rank < 2:
            with pytest.raises(Mismatch, match="backend='gloo'"):
                dist.barrier(dist.new_group(backend=None if rank else "gloo"))
        dist.barrier()

    run_ranks(3, body)
