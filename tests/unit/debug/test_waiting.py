"""Who waits for whom in past operations, and who is a straggler; ranks are threads."""

import json
import re

import numpy as np
import pytest

import allhands as dist
from allhands.debug import command, stragglers
from allhands.debug.dumps import Dump, Group
from allhands.debug.ended_collectives import Arrival, ended_collectives
from allhands.debug.verdict import verdict
from allhands.debug.waiting import operation_stats
from harness.ranks import run_ranks

MS = 1_000_000


def arrival(number, came, ended=0, left_by=0, op="all_reduce"):
    return Arrival(number, op, 800, came * MS, ended * MS, (ended or left_by) * MS)


def test_who_comes_first_waits_for_the_last():
    arrivals = {
        0: [arrival(1, 10, 35), arrival(2, 40, 50), arrival(3, 99)],
        1: [arrival(1, 30, 36), arrival(2, 44, 50)],
        2: [arrival(1, 25, 34), arrival(2, 49, 51), arrival(4, 99)],
    }
    first, second = met = ended_collectives(arrivals, dict.fromkeys(range(3), "host"))
    assert (first.last, first.lateness) == (1, 0.005)
    assert (second.last, second.lateness) == (2, 0.005)
    assert first.waits == {0: 0.02, 1: 0.0, 2: 0.005}
    assert first.transfer == pytest.approx(0.005)
    assert ended_collectives(arrivals, dict.fromkeys(range(3), "host"), most=1) == [
        second
    ]
    [told] = operation_stats(met)
    assert (told.op, told.count, told.num_bytes) == ("all_reduce", 2, 1600)
    assert told.waiting == pytest.approx({0: 0.029, 1: 0.005, 2: 0.005})
    assert told.times_last == {0: 0, 1: 1, 2: 1}
    assert (told.p50, told.p99) == (0.009, 0.025)
    assert told.transfer == pytest.approx(0.005 + 4 / 3e3)


def test_who_may_leave_before_the_last_comes_has_not_waited_for_it():
    rows = {0: [arrival(1, 10, left_by=12, op="broadcast")], 1: [arrival(1, 90)]}
    [met] = ended_collectives(rows, {0: "host", 1: "host"})
    assert (met.last, met.waits) == (1, {0: 0.002, 1: 0.0})
    assert (met.transfer, met.durations) == (None, ())
    [told] = operation_stats([met])
    assert (told.transfer, told.p50, told.p99) == (None, None, None)


def test_clocks_of_hosts_are_set_right_by_ends():
    """Host b is a second ahead; its rank comes first, not last."""
    arrivals = {
        0: [arrival(n, 20 * n, 20 * n + 8) for n in range(1, 9)],
        1: [arrival(n, 1000 + 20 * n - 5, 1000 + 20 * n + 8) for n in range(1, 9)],
    }
    met = ended_collectives(arrivals, {0: "a", 1: "b"})
    assert {each.last for each in met} == {0}
    assert {each.lateness for each in met} == {0.005}


def test_one_rank_or_none_waits_for_nobody():
    assert ended_collectives({}, {}) == []
    assert ended_collectives({0: [arrival(1, 10)]}, {0: "host"}) == []


def test_all_ranks_learn_who_was_last():
    def body(rank):
        group = dist.new_group([1, 0])
        with dist.debug.faults("rank=0,nth=1-4,do=delay:20ms"):
            for _ in range(5):
                dist.all_reduce(np.ones(2000, np.float32), group=group)
            dist.broadcast(np.ones(3), 1, group=group)
        if rank == 0:
            dist.recv(np.ones(1), 1)
        else:
            dist.send(np.ones(1), 0)
        return dist.debug.stats(group), dist.debug.stats()

    one, other = run_ranks(2, body)
    assert one == other
    told = {each.op: each for each in one[0]}
    assert one[0][0].op == "all_reduce"
    assert (told["all_reduce"].count, told["broadcast"].count) == (5, 1)
    assert told["all_reduce"].num_bytes == 40_000
    assert told["all_reduce"].times_last[0] >= 3  # where others are not held up, too
    assert told["all_reduce"].waiting[1] >= 0.04
    assert 0 < told["all_reduce"].p50 <= told["all_reduce"].p99
    assert told["all_reduce"].transfer > 0
    assert "all_gather_single" not in told  # of the exchange itself
    assert all(each.op.startswith("all_gather") for each in one[1])


def records_of(faults):
    def body(rank):
        with dist.debug.faults(faults):
            for _ in range(25):
                dist.all_reduce(np.ones(2))
        return dist.debug.dump()

    return run_ranks(3, body)


def test_a_straggler_is_named(tmp_path, capsys, monkeypatch):
    told = records_of("rank=2,do=delay:20ms")
    found = verdict([Dump.of(each) for each in told])
    assert (found.kind, found.ranks) == ("straggler", (2,))
    text = (
        r"rank 2 is slow: last in 2\d of 25 collectives on group 'default_pg', "
        r"\d+\.\d ms after the others, who waited for it \d\d%"
    )
    assert re.match(text, found.line), found.line
    assert verdict([Dump.of(each) for each in told[:2]]) is None

    monkeypatch.setenv("COLUMNS", "120")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"ranks": told}))
    assert command.main([str(file), "--stats"]) == 1
    shown = capsys.readouterr().out
    assert re.search(
        r"'default_pg' +all_reduce +25 +0\.0004 +- .* ms +rank 2: 2", shown
    )


def straggler(period, lateness):
    """What is found where rank 1 comes `lateness` later each time; both in 0.1 ms."""
    rows = {
        rank: [
            Arrival(n, "all_reduce", 8, (n * period + late) * MS // 10, 0, 0)
            for n in range(40)
        ]
        for rank, late in enumerate((0, lateness))
    }
    met = ended_collectives(rows, {0: "host", 1: "host"})
    return stragglers._straggler(Group("default_pg", "", (0, 1)), met)


def test_who_was_late_for_a_moment_is_no_straggler():
    assert straggler(period=100, lateness=80).rank == 1
    assert straggler(period=100, lateness=70) is None


def test_time_in_which_several_are_waited_for_counts_once():
    found = straggler(period=1, lateness=4000)
    assert (found.rank, found.times_last) == (1, 40)
    assert found.lateness == pytest.approx(0.4)
    assert 0.99 < found.share <= 1


def test_whoever_is_late_in_turn_is_no_straggler():
    turns = ";".join(f"rank={n % 3},nth={n + 1},do=delay:6ms" for n in range(25))
    assert verdict([Dump.of(each) for each in records_of(turns)]) is None
