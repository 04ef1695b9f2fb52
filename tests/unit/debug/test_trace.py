"""Traces of jobs, as Perfetto's own trace processor reads them; ranks are threads."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

import allhands as dist
from allhands.debug import trace_command
from allhands.debug.clocks import Visit, clocks
from allhands.debug.dumps import Dump
from allhands.debug.ended_collectives import clocks_of
from allhands.debug.trace import trace
from harness import perfetto
from harness.ranks import run_ranks

MS = 1_000_000

BY_RANK = """
    select slice.*, process.name as rank, thread.name as track
    from slice
    join thread_track on slice.track_id = thread_track.id
    join thread using (utid)
    join process using (upid)
"""
FLOWS = f"""
    select a.rank as one, b.rank as other, a.name as begins, b.name as ends
    from flow
    join ({BY_RANK}) a on flow.slice_out = a.id
    join ({BY_RANK}) b on flow.slice_in = b.id
"""


def exchange(rank):
    """Messages that overlap; the last ones from whomever they come."""
    after, before = (rank + 1) % 3, (rank - 1) % 3
    works = [dist.irecv(np.ones(2000), after, tag=tag) for tag in range(2)]
    dist.barrier()
    for tag in (1, 0):
        dist.send(np.ones(2000), before, tag=tag)
    for work in works:
        work.wait()
    if rank == 0:
        dist.recv(np.ones(1))
    elif rank == 1:
        dist.send(np.ones(1), 0)


def test_perfetto_reads_what_ranks_did(tmp_path, capsys):
    def body(rank):
        pair = dist.new_group([0, 2], group_desc="pair")
        for _ in range(5):
            dist.all_reduce(np.ones(2000, np.float32))
        dist.barrier()
        if rank != 1:
            dist.broadcast(np.ones(3), 2, group=pair)
        exchange(rank)
        dist.debug.dump(tmp_path / f"rank_{rank}.json")

    run_ranks(3, body)
    written = tmp_path / "trace.out"
    again = ["-o", str(tmp_path / "trace.json")]  # among the records
    for _ in range(2):
        assert trace_command.main([str(tmp_path), *again]) == 0
    capsys.readouterr()
    assert trace_command.main([str(tmp_path), "-o", str(written)]) == 0
    said = f"{written}: 3 ranks, 37 operations; open it at https://ui.perfetto.dev\n"
    assert capsys.readouterr().out == said

    with perfetto.opened(written) as read:
        assert read.problems() == []

        slices = read.query(f"{BY_RANK} where category <> 'wait'")
        assert {told["rank"] for told in slices} == {"rank 0", "rank 1", "rank 2"}
        assert all(told["depth"] == 0 and told["dur"] > 0 for told in slices)
        tracks = {told["track"] for told in slices if told["rank"] == "rank 0"}
        assert {"default_pg: collectives", "pair: collectives"} <= tracks
        assert sum(track.startswith("default_pg: messages") for track in tracks) >= 2

        flows = read.query(FLOWS)
        between = [sorted((told["one"], told["other"])) for told in flows]
        assert all(one != other for one, other in between)
        ops = [sorted((told["begins"], told["ends"])) for told in flows]
        assert ops.count(["all_reduce", "all_reduce"]) == 5 * 2
        assert ops.count(["broadcast", "broadcast"]) == 1
        assert ops.count(["recv", "send"]) == 3 * 2  # not the one from whomever
        told = read.query(
            "select key, display_value as value from slice join args "
            "using (arg_set_id) where slice.name = 'all_reduce' limit 12"
        )
        values = {each["key"].removeprefix("args."): each["value"] for each in told}
        values.pop("thread"), values.pop("queued_us")
        assert values == {
            "group": "0",
            "ranks": "[0, 1, 2]",
            "number": "1",
            "bytes": "8000",
            "count": "2000",
            "dtype": "float32",
            "reduce_op": "SUM",
            "state": "completed",
            "async": "false",
            "end": "on record",
        }


def record(rank, entries, host="host", time=100 * MS, size=2, error=None):
    """What a rank wrote; of each entry what differs from an all_reduce in one call."""
    told = [
        {
            "process_group": ["0", "default_pg"],
            "op": "all_reduce",
            "collective_seq_id": number,
            "p2p_seq_id": number,
            "state": "completed",
            "is_p2p": False,
            "dtype": "float32",
            "count": 2,
            "reduce_op": "SUM",
            "partner": -1,
            "tag": 0,
            "async_op": False,
            "time_created_ns": entry["time_discovered_started_ns"],
            "time_discovered_completed_ns": None,
            "thread": 7,
            "frames": [],
            **entry,
        }
        for number, entry in enumerate(entries, start=1)
    ]
    ranks = json.dumps(list(range(size)))
    group = {"name": "0", "desc": "default_pg", "ranks": ranks}
    return {
        "schema": 1,
        "rank": rank,
        "world_size": size,
        "host": host,
        "pid": 1,
        "reason": "asked for",
        "time_ns": time,
        "pg_config": {"0": group},
        "entries": told,
        "threads": [],
        "error": error,
    }


def at(begin, end=None, **more):
    ended = None if end is None else int(end * MS)
    started = {"time_discovered_started_ns": int(begin * MS)}
    return {**started, "time_discovered_completed_ns": ended, **more}


def test_perfetto_finds_a_slow_rank(tmp_path):
    early, late = [at(0, 20), at(30, 50)], [at(19, 20), at(49, 50)]
    told = [record(rank, [early, early, late][rank], size=3) for rank in range(3)]
    written = tmp_path / "trace.out"
    written.write_text(json.dumps(trace([Dump.of(each) for each in told], {}, {})))
    with perfetto.opened(written) as read:
        waited = read.query(
            "select name, sum(dur) as waited from slice where category = 'wait' "
            "group by name order by waited desc"
        )
    [told] = waited
    assert told["name"] == "wait for rank 2"
    assert told["waited"] == pytest.approx(2 * 2 * 19 * MS)


def slices_of(records, ahead=None, endings=None):
    dumps = [Dump.of(told) for told in records]
    events = trace(dumps, endings or {}, ahead or {})["traceEvents"]
    found = {}
    for event in events:
        if event["ph"] == "X":
            times = event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3
            found.setdefault((event["pid"], event["name"]), []).append(times)
    return found, events


def test_an_end_that_is_not_timed_is_when_the_last_has_come():
    found, _ = slices_of([record(0, [at(10), at(50)]), record(1, [at(30), at(40)])])
    assert found[0, "all_reduce"] == [(0, 20), (40, pytest.approx(40))]
    assert found[0, "wait for rank 1"] == [pytest.approx((0, 20), abs=1e-5)]
    assert found[1, "all_reduce"] == [(20, pytest.approx(20)), (30, 40)]
    assert (1, "wait for rank 0") in found


@pytest.mark.parametrize(
    ("op", "root", "who_waits"),
    [("broadcast", 1, [0]), ("reduce", 0, [0]), ("gather", 1, []), ("scan", -1, [])],
)
def test_who_need_not_wait_has_not_waited(op, root, who_waits):
    entries = [at(begin, 40, op=op, partner=root) for begin in (10, 30)]
    found, _ = slices_of([record(rank, [entries[rank]]) for rank in range(2)])
    waits = [rank for rank, name in found if name == "wait for rank 1"]
    assert waits == who_waits
    assert (1, "wait for rank 0") not in found


def test_what_goes_on_or_failed_and_who_is_missing():
    raised = {"type": "DistBackendError", "message": "lost", "ranks": [], "group": ""}
    records = [
        record(
            0,
            [
                at(10, 20),
                at(
                    30,
                    state="started",
                    frames=[{"name": "f", "filename": "train.py", "line": 7}],
                ),
            ],
            size=3,
        ),
        record(1, [at(10, 20, state="failed")], size=3, error={**raised, "frames": []}),
    ]
    found, events = slices_of(records, endings={2: "killed by SIGKILL"})
    assert found[0, "all_reduce"] == [(0, 10), (20, 90)]
    assert not any(name.startswith("wait") for _, name in found)
    going_on = next(e["args"] for e in events if e.get("ts") == 20_000)
    assert going_on["call_site"] == "train.py:7"
    assert (going_on["state"], going_on["end"]) == ("started", "of the record")
    [failure] = (event for event in events if event["ph"] == "i")
    assert (failure["pid"], failure["name"]) == (1, "DistBackendError")
    assert (failure["ts"], failure["args"]) == (90_000, {"message": "lost"})
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["rank 0", "rank 1", "rank 2: killed by SIGKILL"]
    assert slices_of([record(0, [])])[0] == {}


def test_messages_of_which_some_are_not_on_record_have_no_arrow():
    def message(op, peer, number, begin, **more):
        return at(
            begin, 40, op=op, is_p2p=True, partner=peer, p2p_seq_id=number, **more
        )

    def arrows(sends, recvs):
        events = slices_of([record(0, sends), record(1, recvs)])[1]
        return [event["id"] for event in events if event["ph"] == "f"]

    sends = [message("send", 1, number, 9 + number) for number in (1, 2)]
    recvs = [message("recv", 0, number, 20) for number in (1, 2)]
    assert len(arrows(sends, recvs)) == 2
    assert arrows(sends[1:], recvs) == []
    assert len(arrows(sends, [*recvs[:1], {**recvs[1], "state": "failed"}])) == 1
    assert arrows(sends, [{**recvs[0], "partner": -1}, recvs[1]]) == []
    assert arrows(sends, [{**recvs[0], "tag": dist.ANY_TAG}, recvs[1]]) == []


def test_clocks_of_hosts_are_set_right():
    """Host b is 1000 ms ahead; of barriers, whose ends are not timed, too."""
    early, late = (
        [at(10 * n) for n in range(1, 9)],
        [at(10 * n + 3) for n in range(1, 9)],
    )
    ahead = [at(1000 + (10 * n if n % 2 else 10 * n + 4)) for n in range(1, 9)]
    records = [record(0, early, "a", size=3), record(1, late, "a", size=3)]
    records.append(record(2, ahead, "b", size=3, time=2000 * MS))
    found = clocks_of([Dump.of(told) for told in records])
    assert found["a"] == 0
    assert abs(found["b"] - 1000 * MS) <= 4 * MS
    slices, _ = slices_of(records, found)
    assert max(end for times in slices.values() for _, end in times) < 1000


def test_a_rank_may_be_on_another_host_in_the_next_world():
    """Else its barriers of the world before would be by another host's clock."""

    def barriers(rank, host, world, ahead):
        told = record(rank, [at(ahead + 10 * n) for n in range(1, 9)], host, size=2)
        return replace(Dump.of(told), world=world)

    first = barriers(0, "a", "first", 0), barriers(1, "b", "first", 1000)
    then = barriers(0, "b", "then", 3000), barriers(1, "a", "then", 2000)
    assert clocks_of(first)["b"] == clocks_of([*first, *then])["b"]


def test_hosts_are_compared_by_way_of_others():
    def visits(one, other, ahead):
        return {one: Visit(100, 110, 0), other: Visit(100 + ahead, 110 + ahead, 0)}

    met = [visits("a", "b", 7), visits("b", "c", 20), visits("d", "e", 5)]
    told = {"a": 0, "b": 7, "c": 27, "d": 0, "e": 0}
    assert clocks("abcdee", met) == told
    assert clocks(["a", "c"], [{"a": Visit(1, 0, 0), "c": Visit(2, 0, 0)}])["c"] == 0
    timed = [{"a": Visit(0, 100, 90), "b": Visit(40, 140, 135)}]
    assert clocks("ab", timed)["b"] == 45
    beyond = [{"a": Visit(0, 100, 90), "b": Visit(40, 50, 290)}]
    assert clocks("ab", beyond)["b"] == 50
    drifting = [visits("a", "b", ahead) for ahead in (0, 50, 100)]
    assert clocks("ab", drifting)["b"] == 50


def test_what_is_no_regular_file_is_written_to_and_stays(tmp_path, capsys):
    file, link, pipe = (tmp_path / name for name in ("job.json", "link", "pipe"))
    file.write_text(json.dumps(record(0, [at(1)])))
    link.symlink_to("target")
    for _ in range(2):
        assert trace_command.main([str(file), "-o", str(link)]) == 0
        assert link.is_symlink()
        assert "traceEvents" in json.loads((tmp_path / "target").read_text())
    assert capsys.readouterr().err == ""

    os.mkfifo(pipe)
    to_pipe = [str(file), "-o", str(pipe)]
    assert trace_command.main(to_pipe) == 2  # nobody reads it
    assert capsys.readouterr().err.endswith(f"No such device or address: '{pipe}'\n")
    fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert trace_command.main(to_pipe) == 0
        assert "traceEvents" in json.loads(os.read(fd, 1 << 16))
    finally:
        os.close(fd)
    assert pipe.is_fifo()
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("1 rank, 1 operation")) == ("", 1)
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {"job.json", "link", "target", "pipe"}


def test_what_cannot_be_read_or_written_is_said(tmp_path, capsys):
    assert trace_command.main(["no-such-job"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("allhands trace: 'no-such-job' is no file, and no run id")
    file = tmp_path / "job.json"
    file.write_text(json.dumps(record(0, [at(1)])))
    assert trace_command.main([str(file), "-o", str(tmp_path / "no" / "t.json")]) == 2
    said = capsys.readouterr().err
    missing = tmp_path / "no" / "t.json"
    assert said == f"allhands trace: [Errno 2] No such file or directory: '{missing}'\n"
    file.write_text(json.dumps({**record(0, [at(1)]), "schema": 7}))
    assert trace_command.main([str(file), "-o", str(tmp_path / "t.out")]) == 2
    assert "its schema is 7" in capsys.readouterr().err
