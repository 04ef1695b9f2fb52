"""Groups of several worlds merge, and what goes wrong with that; ranks as threads."""

import json
import subprocess
import sys
import threading
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.store.limits import poll
from harness.ranks import LIMIT, run_ranks
from harness.worlds import total


def merge(store, size=5, limit=LIMIT):
    return dist.group.WORLD.merge_remote_group(store, size, timedelta(seconds=limit))


def in_two_worlds(body):
    """Run `body(rank, world, store)` on the 2 ranks of world 0 and the 3 of world 1."""
    store = dist.HashStore()

    def join(thread):
        world, rank = (0, thread) if thread < 2 else (1, thread - 2)
        dist.init_process_group(
            store=dist.PrefixStore(f"world{world}", store),
            rank=rank,
            world_size=2 + world,
            timeout=timedelta(seconds=LIMIT),
        )
        return body(rank, world, store)

    return run_ranks(5, join, init=False)


def test_groups_of_two_worlds_merge():
    def body(rank, world, store):
        merged = [
            merge(store)
            for _ in range(2)  # through the same store
        ]
        seen = []
        for group in merged:
            array = np.array([10 * world + rank])
            parts = [np.empty_like(array) for _ in range(5)]
            dist.all_gather(parts, array, group=group)
            values = [int(part[0]) for part in parts]
            assert values in ([0, 1, 10, 11, 12], [10, 11, 12, 0, 1])
            assert group.group_desc == "merged"
            assert values[dist.get_rank(group)] == array[0]
            dist.broadcast(array, src=4, group=group)
            assert array[0] == values[4]
            seen.append(values)
        for refuse in (
            lambda: dist.new_subgroups(5, group),
            lambda: dist.DeviceMesh.from_group(group, "cpu"),
        ):
            with pytest.raises(ValueError, match="has ranks of other worlds"):
                refuse()
        assert total() == (3 if world else 1)  # the worlds go on
        return seen

    first, *others = in_two_worlds(body)
    assert all(seen == first for seen in others)


def test_a_merged_group_is_split():
    """By its own ranks, which its parts have as global ranks."""

    def body(rank, world, store):
        whole = merge(store)
        mine = dist.get_rank(whole)
        part = dist.split_group(whole, [[4, 0], [1, 2, 3]])
        members = [0, 4] if mine in (0, 4) else [1, 2, 3]
        assert dist.get_process_group_ranks(part) == members
        assert dist.get_rank(part) == members.index(mine)
        assert part.timeout == whole.timeout
        array = np.array([mine])
        dist.broadcast(array, members[-1], part)
        assert array[0] == members[-1]
        inner = part.split_group([0, 1])
        if inner is not None:
            assert dist.get_process_group_ranks(inner) == members[:2]
            found = [None, None]
            dist.all_gather_object(found, mine, inner)
            assert found == members[:2]
        again = whole.split_group(range(5), group_name="again")
        assert again.group_name == "again"
        assert own_total(again) == own_total(whole) == 10
        assert total() == (3 if world else 1)  # the worlds go on
        assert total(dist.new_group([0, 1])) in (1, 2) if rank < 2 else True
        return part.group_name

    def own_total(group):
        array = np.array([dist.get_rank(group)])
        dist.all_reduce(array, group=group)
        return int(array[0])

    assert len(set(in_two_worlds(body))) == 2


def test_a_merged_group_shrinks_when_a_rank_is_lost():
    start = threading.Barrier(5)

    def body(rank, world, store):
        whole = merge(store)
        dist.barrier(whole)
        mine = dist.get_rank(whole)
        start.wait(LIMIT)
        if mine == 3:
            whole.shutdown()
            return None
        with pytest.raises(dist.DistBackendError):
            dist.barrier(whole)
        rest = dist.shrink_group([3], whole)
        assert dist.get_process_group_ranks(rest) == [0, 1, 2, 4]
        with pytest.raises(ValueError, match="is not registered"):
            dist.barrier(whole)
        found = [None] * 4
        dist.all_gather_object(found, mine, rest)
        less = dist.shrink_group([0], rest) if mine else None
        if less is not None:
            array = np.array([mine])
            dist.broadcast(array, 4, less)
            assert array[0] == 4
        return found

    found = in_two_worlds(body)
    assert found.count(None) == 1
    assert [one for one in found if one] == [[0, 1, 2, 4]] * 4


def check_merges(store):
    group = merge(store)
    array = np.ones(1)
    dist.all_reduce(array, group=group)
    assert array[0] == 5
    assert total() in (1, 3)  # the worlds go on


def refusal(error, store, size=5):
    """What this rank is told, long before the limit."""
    with pytest.raises(error) as raised:
        merge(store, size)
    return str(raised.value)


def test_groups_that_are_too_large_to_merge():
    def body(rank, world, store):
        text = refusal(ValueError, store, 4)
        check_merges(store)
        return text

    (text,) = {*in_two_worlds(body)}
    assert "the groups have more than 4 ranks together: " in text


def test_groups_that_differ_about_the_size_of_a_merge():
    def body(rank, world, store):
        text = refusal(ValueError, store, 5 + world)
        check_merges(store)
        return text

    (text,) = {*in_two_worlds(body)}
    assert " ranks, a group that came before to " in text


class Interrupted(BaseException):
    """As by Ctrl-C."""


class Failing(dist.Store):
    """A store whose n-th call fails."""

    def __init__(self, store, number, error):
        self._store, self._number, self._error = store, number, error

    def compare_set(self, key, expected_value, desired_value):
        self._number -= 1
        if self._number == 0:
            raise self._error
        return self._store.compare_set(key, expected_value, desired_value)

    def set(self, key, value):
        self._store.set(key, value)

    def get(self, key):
        return self._store.get(key)


@pytest.mark.parametrize("error", [dist.DistNetworkError("it is gone"), Interrupted()])
@pytest.mark.parametrize("number", [1, 3, 6, 10])
def test_a_merge_whose_store_fails(number, error):
    """On the rank that asks it for all; the others are told, and all may try again."""
    was_refused = threading.Event()

    def body(rank, world, store):
        if world == 0:
            failing = Failing(store, number, error)
            if rank == 0:
                with pytest.raises(type(error)):
                    merge(failing)
            else:
                text = refusal(dist.DistStoreError, store)
                assert f"rank 0 of group '0' raised {error!r}" in text
            was_refused.set()
        was_refused.wait(LIMIT)
        check_merges(store)

    in_two_worlds(body)


def test_a_merge_names_who_did_not_come():
    """And leaves nothing in the way of the next."""
    has_timed_out = threading.Event()

    def body(rank, world, store):
        if world == 0:
            with pytest.raises(dist.DistStoreError, match=r"not come: \[2, 3, 4\]"):
                merge(store, limit=2)
            has_timed_out.set()
        has_timed_out.wait(LIMIT)
        check_merges(store)

    in_two_worlds(body)


PROGRAM = """
import sys
import allhands as dist

dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
dist.group.WORLD.merge_remote_group(dist.FileStore(sys.argv[1], -1), 6)
"""


def test_a_group_that_dies_as_it_waits(tmp_path):
    """Those that wait with it are told; later ones merge as if it had not come."""
    path = str(tmp_path / "store")
    dying = subprocess.Popen([sys.executable, "-c", PROGRAM, path])
    has_died = threading.Event()

    def kill():
        shared = dist.FileStore(path, -1)
        for _ in poll(timedelta(seconds=LIMIT)):
            if shared.check(["merge"]) and json.loads(shared.get("merge"))[2] == 3:
                break  # that group, and the two ranks of world 0
        dying.kill()
        dying.wait()

    def body(rank, world, _):
        store = dist.FileStore(path, -1)
        if world == 0:
            text = refusal(dist.DistStoreError, store, 6)
            assert f"pid {dying.pid}, rank 0 of a group that had come, died" in text
            has_died.set()
        has_died.wait(LIMIT)
        check_merges(store)

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        in_two_worlds(body)
    finally:
        killing.join()


@pytest.mark.parametrize(
    "record",
    [
        b"\xff",
        b"{}",
        b"[0, 5, 2, {}]",
        b"[0, 5, 2, [], []]",
        b'[0, 5, 2, {"x": ""}, []]',
        b'[0, 5, 2, {"1": 1}, []]',
        b"[0, 5, true, {}, []]",
        b"[0, 5, 6, {}, []]",
        b"[-1, 5, 2, {}, []]",
        b"[0, 5, 2, {}, 1]",
        b"[0, 5, 2, {}, [1]]",
        b'[0, 5, 2, {}, [["host", 0, 1, ""]]]',
        b"[" * 100_000,
    ],
)
def test_a_record_that_no_merge_wrote(record):
    def body(rank):
        store = dist.HashStore()
        store.set("merge", record)
        assert "which no merge has written" in refusal(dist.DistStoreError, store)

    run_ranks(2, body)
