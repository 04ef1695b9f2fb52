"""Who waits for whom, where the records leave it open."""

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


def gave_up(rank, time, error, ranks):
    """A rank whose receive from the one before it has failed."""
    failure = Failure(error, "", ranks, "default_pg", ())
    entries = (receive((rank - 1) % 3, created=rank),)
    groups = {"default_pg": WORLD}
    return Dump(rank, 3, "here", 1, "failure", time, groups, entries, (), failure)


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
