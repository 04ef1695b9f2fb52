"""What errors tell of ranks that left no record; of real jobs see tests/process."""

from dataclasses import replace

import pytest

from allhands.debug.dumps import ELSEWHERE, Dump, Entry, Failure
from allhands.debug.hearsay import reason_in, told_cycle, told_of
from allhands.debug.verdict import verdict

CYCLE = (
    "cycle of waits: rank 0 waits in all_reduce #1 on group 'a' (t.py:4) for "
    "rank 1, which waits in all_reduce #1 on group 'b' (t.py:7) for rank 0"
)


def records(message, error="CollectiveTimeoutError", ranks=(1,), rank=0):
    """Those of a world of three in which one rank failed and wrote its record."""
    failure = Failure(error, message, ranks, "0", ())
    return {rank: Dump(rank, 3, "here", 1, "failure", 10**11, {}, (), (), failure)}


@pytest.mark.parametrize("who", ["", " (ranks of the world)"])
def test_a_reason_is_what_follows_why(who):
    assert reason_in(f"timed out; missing [1]; why{who}: it sleeps") == "it sleeps"
    assert reason_in("timed out; nobody knows why") == ""


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("rank 1 is in its own code (t.py:3)", "stuck"),
        ("rank 1 is in wait() (t.py:3)", "stuck"),
        ("rank 1 has not come", "stuck"),
        ("rank 1: stopped by SIGSTOP, and not continued", "stuck"),
        ("rank 1 waited in recv(float32, count 4, from any rank, tag 0)", "stuck"),
        ("rank 1 came too late (t.py:3)", "late"),
    ],
)
def test_what_a_rank_did_is_told(part, kind):
    dumps = records(f"all_reduce: timed out; why: rank 2 waits in recv; {part}")
    assert told_of(1, dumps) == (kind, (1,), part)
    assert told_of(2, dumps) is None
    assert told_of(11, records(f"why: {part}")) is None


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ("died", "dead"),
        ("left the group", "dead"),
        ("ended by ValueError: no", "exception"),
    ],
)
def test_how_a_rank_ended_is_told(end, kind):
    text = f"rank 2 reports: rank 1 (pid 77) {end}; rank 1 was last in barrier #1"
    dumps = records(text, "RankFailedError")
    assert told_of(1, dumps) == (kind, (1,), f"rank 1 {end}")
    # It is the number in a group; which rank of the world, only `ranks` says.
    dumps = records(text, "RankFailedError", ranks=(2,))
    assert told_of(1, dumps) is None
    assert told_of(2, dumps) == (kind, (2,), f"rank 2 {end}")
    assert told_of(2, records(text, "RankFailedError", ranks=(1, 2))) is None


def test_a_cycle_is_told_if_the_missing_rank_is_in_it():
    dumps = records(f"all_reduce: timed out; why: {CYCLE}")
    assert told_cycle(dumps, {1}) == ("cycle", (0, 1), CYCLE)
    assert told_cycle(dumps, {2}) is None
    assert told_cycle(records("all_reduce: timed out; why: rank 1 sleeps"), {1}) is None


def test_ranks_that_cannot_be_are_not_believed():
    far = CYCLE.replace("rank 1", "rank 3")
    assert told_cycle(records(f"why: {far}"), {3}) is None


def test_what_did_not_fail_by_waiting_tells_nothing():
    dumps = records(f"why: {CYCLE}", "ValueError")
    assert told_cycle(dumps, {1}) is None
    assert told_of(1, records("why: rank 1 has not come", "ValueError")) is None


@pytest.mark.parametrize(
    "message",
    [
        "why: rank {} is in its own code",
        "why: cycle of waits: rank 0 waits in recv for rank {}, which waits in recv",
        "called different things: rank {}: barrier(); rank 0: barrier()",
        "ranks [{}] of group '0' could not",
    ],
)
@pytest.mark.parametrize("error", ["CollectiveTimeoutError", "CollectiveMismatchError"])
def test_a_rank_of_thousands_of_digits_is_none(message, error):
    dumps = records(message.format("9" * 5000), error)
    assert told_of(1, dumps) is None
    assert told_cycle(dumps, {1}) is None
    assert verdict(dumps.values()) is not None


@pytest.mark.parametrize(
    ("endings", "shown"), [({}, "it left no record"), ({1: ELSEWHERE}, ELSEWHERE)]
)
def test_a_verdict_says_why_it_takes_another_ranks_word(endings, shown):
    entry = Entry(
        *("0", "barrier", 1, "failed", False, "", 0, "", -1, 0, False), created=10**10
    )
    [dump] = records("barrier: timed out; why: rank 1 is in wait() (t.py:3)").values()
    found = verdict([replace(dump, world_size=2, entries=(entry,))], endings)
    assert (found.kind, found.ranks) == ("stuck", (1,))
    assert found.line.startswith(f"rank 1 is in wait() (t.py:3) ({shown}); rank 0 ")
