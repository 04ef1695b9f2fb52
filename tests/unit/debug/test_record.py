"""dist.debug.dump: what is in it, and what follows from a file of it."""

import json
import os
import signal
import sys
import threading
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

import allhands as dist
from allhands.backends import failures
from allhands.debug import command, record, reporter
from allhands.debug.dumps import Dump, Entry
from allhands.debug.job_record import read_job
from allhands.groups.world import current
from harness.ranks import run_ranks


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        *(("bool", 1), ("int64", 8), ("bfloat16", 2), ("complex128", 16)),
        *(("float8_e5m2", 1), ("float4_e2m1fn_x2", 1), ("", 1)),
    ],
)
def test_an_operation_moved_so_many_bytes(dtype, width):
    parts = "0", "broadcast", 1, "completed", False, dtype, 3, "", 0, 0, False
    assert Entry(*parts, created=1).num_bytes == 3 * width


def test_a_record_has_what_the_rank_did(tmp_path):
    def body(rank):
        group = dist.new_group([0, 1], group_desc="pair")
        dist.all_reduce(np.ones(3, np.float32), op=dist.ReduceOp.MAX)
        dist.broadcast(np.ones(2), 1, group=group)
        if rank == 0:
            dist.send(np.ones(4), 1, tag=7)
        else:
            dist.recv(np.ones(4), 0, tag=7)
        dist.barrier()
        return dist.debug.dump(tmp_path / f"rank_{rank}.json")

    told = run_ranks(2, body)
    dumps = read_job([tmp_path]).dumps
    assert [dump.raw for dump in dumps] == told
    assert [str(entry) for entry in dumps[1].entries] == [
        "all_reduce(float32, count 3, MAX)",
        "broadcast(float64, count 2, root 1)",
        "recv(float64, count 4, from rank 0, tag 7)",
        "barrier",
    ]
    assert {entry.state for entry in dumps[1].entries} == {"completed"}
    assert [entry.number for entry in dumps[1].entries] == [1, 1, 1, 2]
    assert dumps[0].group_of(dumps[0].entries[1].group).desc == "pair"
    assert dumps[0].raw["entries"][2]["profiling_name"] == "allhands:send 0->1"
    times = [entry.created for entry in dumps[0].entries]
    assert times == sorted(times)
    assert dumps[0].time - 100e9 < times[0] < dumps[0].time


def test_a_call_that_waits_is_told_with_its_line():
    def body(rank):
        if rank == 1:
            seen.wait(100)
            return dist.barrier()
        told = []

        def look():
            for _ in range(10_000):
                told[:] = dist.debug.dump()["entries"]
                if told and told[0]["frames"]:
                    break
            seen.set()

        looking = threading.Thread(target=copy_context().run, args=(look,))
        looking.start()
        dist.barrier()
        looking.join()
        return told

    seen = threading.Event()
    [entry] = run_ranks(2, body)[0]
    assert entry["state"] == "started"
    assert entry["frames"][0]["filename"] == __file__
    assert entry["frames"][0]["name"] == "body"


def test_a_call_is_waited_in_until_it_raises(monkeypatch):
    """Who asks a rank at the moment in which it gives up learns where it waited."""
    told = {}

    def asked(error, traceback):
        before = sys._getframe().f_back  # where the signal would have come
        seen = record.told_now(current(), "signal", interrupted=before)
        told["before"] = Dump.of(seen).entries[-1]

    monkeypatch.setattr(failures, "_listener", asked)

    def body(rank):
        array = np.ones(3)
        dist.barrier()
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError):
                dist.recv(array, 1, timeout=timedelta(milliseconds=1))
            told["after"] = Dump.of(dist.debug.dump()).entries[-1]
        dist.barrier()

    run_ranks(2, body)
    before = told["before"]
    assert before.is_under_way
    assert before.is_waited_for
    assert "dist.recv(array, 1" in line_of(before.place)
    assert told["after"].state == "failed"


def test_so_is_a_message_after_which_others_began(monkeypatch):
    """A signal comes first where the error is made, as the wait itself is native."""
    monkeypatch.setattr(record, "_RAISING_NS", 0)  # however long that takes
    told = []

    def look(frame, event, _):
        if event == "call" and frame.f_code.co_filename == dist.errors.__file__:
            seen = record.told_now(current(), "signal", interrupted=frame)
            told.append(Dump.of(seen))

    def body(rank):
        array = np.ones(3)
        dist.barrier()
        if rank == 0:
            limit = timedelta(seconds=1)
            awaited = dist.irecv(array, 1, tag=1, timeout=limit)
            for tag in (2, 3):
                dist.isend(array, 1, tag=tag).wait()
            sys.setprofile(look)
            try:
                with pytest.raises(dist.CollectiveTimeoutError):
                    awaited.wait()
            finally:
                sys.setprofile(None)
        dist.barrier()
        if rank == 1:
            for tag in (2, 3):
                dist.recv(array, 0, tag=tag)
        dist.barrier()

    run_ranks(2, body)
    first = told[0].entries
    assert [entry.op for entry in first] == ["barrier", "recv", "send", "send"]
    assert first[1].is_under_way
    assert first[1].is_waited_for
    assert "awaited.wait()" in line_of(first[1].place)


def test_a_failure_is_told_while_the_rank_waits_in_its_next_call():
    def body(rank):
        if rank == 1:
            seen.wait(100)
            return dist.barrier()
        with pytest.raises(dist.CollectiveTimeoutError):
            dist.recv(np.ones(1), 1, timeout=timedelta(milliseconds=1))
        told = []

        def look():
            for _ in range(10_000):
                if dist.debug.dump()["entries"][-1]["op"] == "barrier":
                    break
            told[:] = dist.debug.dump()["entries"]
            seen.set()

        looking = threading.Thread(target=copy_context().run, args=(look,))
        looking.start()
        dist.barrier()
        looking.join()
        return [entry["state"] for entry in told]

    seen = threading.Event()
    assert run_ranks(2, body)[0] == ["failed", "started"]


def line_of(place):
    return Path(__file__).read_text().splitlines()[place.line - 1]


def test_a_failure_writes_a_record_where_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLHANDS_DUMPS", str(tmp_path / "records"))
    # Of failures in a row the first is told: another test's is none of this row.
    monkeypatch.setattr(reporter, "_LEAST_PAUSE", 0.0)

    def body(rank):
        dist.barrier()  # so that the limit is not that of meeting
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError):
                dist.recv(np.ones(1), 1, timeout=timedelta(seconds=0.01))
        dist.barrier()

    run_ranks(2, body)
    [dump] = read_job([tmp_path / "records"]).dumps
    assert (dump.rank, dump.reason) == (0, "failure")
    assert dump.failure.type == "CollectiveTimeoutError"
    assert dump.failure.ranks == (1,)
    assert dump.failure.frames[0].filename == __file__
    assert dump.entries[-1].state == "failed"
    assert dump.entries[-1].place == dump.failure.frames[0]


def test_nothing_is_written_where_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGUSR2)

    def body(rank):
        with pytest.raises(dist.CollectiveMismatchError):
            dist.all_reduce(np.ones(1 + rank))

    run_ranks(2, body)
    assert os.listdir(tmp_path) == []
    assert signal.getsignal(signal.SIGUSR2) is before  # of a rank that is a thread


def test_a_folder_that_cannot_be_written_changes_no_error(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("ALLHANDS_DUMPS", str(file))

    def body(rank):
        with pytest.raises(dist.CollectiveMismatchError, match="count 2"):
            dist.all_reduce(np.ones(1 + rank))

    run_ranks(2, body)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("[]", "it is no flight record"),
        ("{}", "it is no flight record: it has no schema"),
        ("hello", "it is no flight record: Expecting value"),
        ('{"schema": 2}', "its schema is 2, this version reads 1"),
        ('{"ranks": 3}', "its ranks are 3, no list"),
        ("[" * 100_000, "rank_0.json: "),
        ('{"schema": 1, "rank": "x"}', "'x' is no number"),
    ],
)
def test_a_file_that_is_no_record_is_named(tmp_path, capsys, text, problem):
    (tmp_path / "rank_0.json").write_text(text)
    assert command.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "allhands debug: " in error
    assert "rank_0.json: " in error
    assert problem in error


def test_a_folder_without_records_is_named(tmp_path, capsys):
    assert command.main([str(tmp_path)]) == 2
    told = f"allhands debug: there is no flight record in '{tmp_path}'\n"
    assert capsys.readouterr().err == told


def test_the_command_names_what_is_wrong(tmp_path, capsys):
    def body(rank):
        if rank != 1:
            with pytest.raises(dist.CollectiveTimeoutError):
                dist.all_reduce(np.ones(3), timeout=timedelta(seconds=0.1))
        told = dist.debug.dump()
        all_have_told.wait(100)
        return told

    all_have_told = threading.Barrier(3)
    told = run_ranks(3, body)
    told[0]["error"] = {
        "type": "CollectiveTimeoutError",
        "message": "all_reduce #1 on group '0': timed out",
        "ranks": [1],
        "group": "0",
        "frames": [{"name": "step", "filename": "train.py", "line": 31}],
    }
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"ranks": told[:1] + told[2:], "endings": {"1": "gone"}}))
    assert command.main([str(job)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("rank 1: gone; rank 0 waits in all_reduce #1 on group '")
    assert "train.py:31" in shown
    assert command.main([str(job), "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["kind"], verdict["ranks"]) == ("dead", [1])


def test_a_healthy_job_gets_no_verdict(tmp_path, capsys):
    def body(rank):
        dist.barrier()
        return dist.debug.dump(tmp_path / f"rank_{rank}.json")

    told = run_ranks(2, body)
    assert Dump.of(told[0]).failure is None
    assert command.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("nothing is wrong")
