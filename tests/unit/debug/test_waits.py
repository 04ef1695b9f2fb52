"""Who waits for whom, where the records leave it open."""

import pytest

from allhands.debug.dumps import Dump, Entry, Failure, Group
from allhands.debug.waits import cycle, waits

WORLD = Group("default_pg", "", (0, 1, 2))


def receive(partner, created):
    return Entry(
        "default_pg",
        "recv",
        1,
        "failed",
        True,
        "float32",
        4,
        "",
        partner,
        0,
        False,
        created,
    )


def collective(number, state, group="default_pg", op="barrier", root=-1):
    return Entry(
        group,
        op,
        number,
        state,
        False,
        "",
        0,
        "",
        root,
        0,
        False,
        created=number,
    )


def gave_up(rank, time, error, ranks):
    """A rank whose receive from the one before it has failed."""
    failure = Failure(error, "", ranks, "default_pg", ())
    entries = (receive((rank - 1) % 3, created=rank),)
    groups = {"default_pg": WORLD}
    return Dump(rank, 3, "here", 1, "failure", time, groups, entries, (), failure)


def test_of_receives_that_fail_together_the_one_that_the_error_names():
    failure = Failure("CollectiveTimeoutError", "", (1,), "default_pg", ())
    entries = (receive(1, created=1), receive(2, created=2))
    groups = {"default_pg": WORLD}
    dump = Dump(0, 3, "here", 1, "failure", 9, groups, entries, (), failure)
    assert waits({0: dump}, 5)[0].awaited == {1}


def test_a_receive_waits_for_its_source_whoever_gave_up_first():
    dumps = {
        0: gave_up(0, 100, "RankFailedError", (2,)),
        1: gave_up(1, 100, "RankFailedError", (2,)),
        2: gave_up(2, 90, "CollectiveTimeoutError", (1,)),
    }
    found = waits(dumps, 5)
    assert {rank: set(wait.awaited) for rank, wait in found.items()} == {
        0: {2},
        1: {0},
        2: {1},
    }
    assert [wait.rank for wait in cycle(found, dumps)] == [0, 2, 1]


class Counted(tuple):
    """Says how often somebody has gone through it."""

    times = 0

    def __iter__(self):
        type(self).times += 1
        return super().__iter__()


def test_records_of_many_ranks_are_gone_through_once_or_twice():
    size = 30
    group = Group("default_pg", "", tuple(range(size)))

    def dump(rank):
        numbers = range(1, 3 if rank == 7 else 4)
        entries = Counted(
            collective(number, "started" if number == 3 else "completed")
            for number in numbers
        )
        groups = {"default_pg": group}
        return Dump(rank, size, "here", 1, "signal", 10**11, groups, entries, ())

    found = waits({rank: dump(rank) for rank in range(size)}, 5)
    assert Counted.times <= 3 * size
    assert found.keys() == set(range(size)) - {7}
    assert {wait.awaited for wait in found.values()} == {frozenset({7})}


def test_a_rank_has_come_that_went_on():
    entries = {
        0: [collective(1, "completed"), collective(2, "started")],
        1: [collective(1, "completed"), collective(3, "completed")],
        2: [collective(1, "completed"), collective(2, "started", group="other")],
    }
    groups = {"default_pg": WORLD}
    dumps = {
        rank: Dump(rank, 3, "here", 1, "signal", 10**11, groups, tuple(found), ())
        for rank, found in entries.items()
    }
    assert waits(dumps, 5)[0].awaited == {2}


@pytest.mark.parametrize(
    ("op", "root", "missing", "awaited"),
    [
        ("broadcast", 0, "", {0}),  # not rank 2, which nobody needs
        ("broadcast", 0, "root", {0}),
        ("scatter", 2, "", {2}),
        ("broadcast", 1, "", {0, 2}),  # its data is for them
        ("reduce", 1, "", {0, 2}),
        ("exscan", -1, "", {0}),
        ("reduce", 2, "", {0, 2}),  # the root, or who passes something on
        ("all_reduce", -1, "", {0, 2}),
    ],
)
def test_of_the_late_ones_those_count_that_are_needed(op, root, missing, awaited):
    """Ranks 0 and 2 have not come, nor has 0 left a record where it is missing."""
    last = collective(2, "started", op=op, root=root)
    entries = {0: [collective(1, "completed")], 1: [last]}
    entries[2] = entries[0]
    groups = {"default_pg": WORLD}
    dumps = {
        rank: Dump(rank, 3, "here", 1, "signal", 10**11, groups, tuple(found), ())
        for rank, found in entries.items()
        if not (missing and rank == root)
    }
    found = waits(dumps, 5)[1]
    assert (found.awaited, found.is_known) == (awaited, not missing)


def test_who_passes_on_what_is_needed_is_named_where_all_others_have_come():
    last = collective(2, "started", op="broadcast", root=0)
    entries = {0: [last], 1: [last], 2: [collective(1, "completed")]}
    groups = {"default_pg": WORLD}
    dumps = {
        rank: Dump(rank, 3, "here", 1, "signal", 10**11, groups, tuple(found), ())
        for rank, found in entries.items()
    }
    assert {rank: wait.awaited for rank, wait in waits(dumps, 5).items()} == {
        0: {2},
        1: {2},
    }
