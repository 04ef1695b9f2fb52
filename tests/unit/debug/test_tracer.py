"""What is written of a group's operations, and how that is read again."""

import json
import os
import threading
from types import SimpleNamespace

import pytest

from allhands.debug import trace_command, trace_log, tracer
from allhands.debug.trace_log import TraceLog, logs_in, read_logs
from allhands.debug.tracer import _Reading
from allhands.rendezvous.identity import process_identity
from allhands.rendezvous.roster import Roster

HEAD = {"trace": 1, "world": "w", "rank": 0, "world_size": 1, "host": "h", "pid": 1}


def entry(number, state="completed", is_message=False):
    return {
        "op": "isend" if is_message else "all_reduce",
        "is_message": is_message,
        "sequence": number,
        "state": state,
        "dtype": "float32",
        "count": 1,
        "reduce_op": "SUM",
        "partner": -1,
        "tag": 0,
        "async_op": False,
        "issued": number,
        "started": None if state == "scheduled" else number,
        "ended": number + 1 if state == "completed" else None,
        "thread": 7,
    }


def line(told, **changes):
    return json.dumps({"group": "0", **told, **changes}) + "\n"


def news(reading, *entries):
    return [
        f"{told['lost']} lost" if "lost" in told else (told["sequence"], told["state"])
        for told in reading.news(list(entries))
    ]


def test_each_operation_is_written_once_it_begins_and_once_it_ends():
    reading = _Reading(False, 64)
    assert reading.after == 0
    assert news(reading, entry(1), entry(2, "started"), entry(9, is_message=True)) == [
        (1, "completed"),
        (2, "started"),
    ]
    assert reading.after == 1
    assert news(reading, entry(2, "started"), entry(3, "scheduled")) == []
    assert news(reading, entry(2, "failed"), entry(3)) == [
        (2, "failed"),
        (3, "completed"),
    ]
    assert reading.after == 3
    assert news(reading) == []


def test_what_the_recorder_has_written_over_is_lost():
    reading = _Reading(True, 64)

    def message(number, state="completed"):
        return entry(number, state, is_message=True)

    assert news(reading, message(2, "started"), message(5)) == [
        (2, "started"),
        (5, "completed"),
    ]
    # 1, 3 and 4 may have been about to be written.
    assert reading.after == 0
    assert news(reading, message(3), message(7)) == [
        (2, "ended"),
        (3, "completed"),
        (7, "completed"),
        "2 lost",
    ]
    assert reading.after == 5
    assert news(reading, message(6)) == [(6, "completed")]
    assert reading.after == 7


def test_what_no_recorder_can_have_any_more_is_lost_at_once():
    """However much that is: nothing is kept of it."""
    reading = _Reading(False, 4)
    far = 10**12
    assert news(reading, entry(3, "started"), entry(far - 1), entry(far)) == [
        (3, "started"),
        (far - 1, "completed"),
        (far, "completed"),
        f"{far - 5} lost",  # not what was open, nor the last four
    ]
    # One of these four is seen after all; of what waits in a queue nothing says more.
    queued = [entry(far + number, "scheduled") for number in (8, 9)]
    assert news(reading, entry(3), entry(far - 2), entry(far + 1), *queued) == [
        (3, "completed"),
        (far - 2, "completed"),
        (far + 1, "completed"),
        "1 lost",
    ]
    assert reading.after == far + 1


def test_it_takes_its_share_of_a_cpu_and_no_more(monkeypatch):
    waits = []

    def wait(seconds):
        waits.append(round(seconds, 6))
        return len(waits) == 3

    times = iter([0, 0.4, 1, 1.001])
    monkeypatch.setattr(tracer, "time", SimpleNamespace(thread_time=times.__next__))
    tracer._Tracer()._run(SimpleNamespace(wait=wait))
    assert waits == [0.1, 20, 0.1]


def test_what_was_written_is_read_wherever_the_file_ends(tmp_path, capsys):
    log = TraceLog(str(tmp_path), HEAD)
    log.add([{"group": "0", "desc": "default_pg", "ranks": [0]}])
    told = [entry(1), entry(2, "started"), entry(2), entry(3, "started")]
    log.add({"group": "0", **each} for each in told)
    log.add([{"group": "0", "lost": 4}])
    log.close()
    with open(log.path, "ab") as file:
        file.write(b'{"group":"0","op":"all_re')
    assert logs_in(str(tmp_path)) == logs_in(log.path) == [log.path]
    [dump], lost, empty = read_logs([log.path])
    assert empty == []
    assert (dump.rank, dump.world, lost) == (0, "w", {0: 4})
    assert dump.group_of("0").desc == "default_pg"
    states = [(each.number, each.state) for each in dump.entries]
    assert states == [(1, "completed"), (2, "completed"), (3, "started")]

    assert trace_command.main([log.path, "-o", str(tmp_path / "t.out")]) == 0
    shown = capsys.readouterr()
    assert shown.out.endswith(
        "t.out: 1 rank, 3 operations; open it at https://ui.perfetto.dev\n"
    )
    assert shown.err == (
        "allhands trace: rank 0 lost 4 operations, which came faster than they were "
        "written; a larger ALLHANDS_RECORD_LENGTH loses fewer\n"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}\n", "its format is None, this version reads 1"),
        ("[1]\n", "'[1]\\n' is no object"),
        ('{"trace":2}\n', "its format is 2"),
        ('{"trace":1,"world":"w"}\n', "KeyError: 'rank'"),
        ("\xff\n", "Error"),
        (f"{line(HEAD, rank=-1)}", "-1 is not in [0, "),
        (f"{line(HEAD, rank=1)}", "1 is not in [2, "),
        (f"{line(HEAD, rank=1 << 40)}", f"{1 << 40} is not in [0, "),
        (f"{line(HEAD, world_size=1 << 40)}", f"{1 << 40} is not in [1, "),
        (f"{line(HEAD, pid=float('inf'))}", "inf is no number"),
        (f"{line(HEAD)}{line(entry(1), started=10**400)}", "is not in [0, "),
        (f"{line(HEAD)}{line(entry(-1))}", "-1 is not in [0, "),
        (f"{line(HEAD)}{line({}, lost=-4)}", "-4 is not in [0, "),
        (f"{line(HEAD)}{line({}, lost=float('inf'))}", "inf is no number"),
        ("[" * 100_000 + "\n", "RecursionError"),
    ],
)
def test_what_is_no_such_file_is_named(tmp_path, capsys, text, problem):
    file = tmp_path / "odd.jsonl"
    file.write_text(text, encoding="latin-1")
    assert trace_command.main([str(tmp_path), "-o", str(tmp_path / "t.out")]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"allhands trace: {file}: it is no file of .jsonl that a")
    assert problem in shown


@pytest.mark.parametrize("text", ["", '{"trace":1,"world":"w","ra'])
def test_a_rank_that_wrote_nothing_hides_no_other(tmp_path, capsys, text):
    """It was killed, or the disk was full, before its first line was written."""
    folder, out = tmp_path / "trace", str(tmp_path / "t.out")
    log = TraceLog(str(folder), HEAD)
    log.add([{"group": "0", **entry(1)}])
    log.close()
    (folder / "early.jsonl").write_text(text)
    assert trace_command.main([str(folder), "-o", out]) == 0
    shown = capsys.readouterr()
    assert "t.out: 1 rank, 1 operation;" in shown.out
    left_out = f"allhands trace: {folder}/early.jsonl: left out, as its rank died, "
    assert shown.err.startswith(left_out)
    assert shown.err.count("\n") == 1
    os.unlink(log.path)
    assert trace_command.main([str(folder), "-o", out]) == 2
    assert capsys.readouterr().err.endswith("no rank has written anything there\n")


def test_a_file_that_cannot_be_begun_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_log, "_MOST_BYTES", 10)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="may have no more"):
        TraceLog(str(tmp_path), HEAD)
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(tmp_path) == []


def test_a_pipe_is_no_such_file(tmp_path, capsys):
    os.mkfifo(tmp_path / "a.jsonl")
    assert trace_command.main([str(tmp_path), "-o", str(tmp_path / "t.out")]) == 2
    assert "it is no regular file" in capsys.readouterr().err


def test_a_file_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_log, "_MOST_BYTES", 1000)
    log = TraceLog(str(tmp_path), HEAD)
    log.add([{"group": "0", **entry(1)}])
    with pytest.raises(OSError, match="MiB, and may have no more"):
        log.add({"group": "0", **entry(number)} for number in range(2, 9))
    log.close()
    [dump] = read_logs([log.path]).dumps
    assert [each.number for each in dump.entries] == [1]


def test_what_has_not_ended_goes_on_until_its_own_world_does(tmp_path):
    """A job was started again, and writes to the same folder."""
    for number, (world, ended) in enumerate((("a", 100), ("b", 9000), ("c", 0))):
        log = TraceLog(
            str(tmp_path), {**HEAD, "world": world, "rank": number, "world_size": 3}
        )
        if ended:
            told = [entry(ended - 1), entry(ended - 50, "started")]
            log.add({"group": "0", **each} for each in told)
        log.close()
    dumps = read_logs(logs_in(str(tmp_path))).dumps
    assert {dump.world: dump.time for dump in dumps} == {"a": 100, "b": 9000, "c": 100}


def test_without_a_thread_for_it_the_job_goes_on(tmp_path, monkeypatch, capfd):
    class NoThread(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    monkeypatch.setenv("ALLHANDS_TRACE", str(tmp_path))
    here = tracer._Tracer()
    with monkeypatch.context() as patch:
        patch.setattr(tracer.threading, "Thread", NoThread)
        here.begin(Roster([process_identity()], b"token"), 0)
    said = capfd.readouterr().err
    assert "writes no trace from here on, and goes on without: ALLHANDS_TRACE" in said
    assert said.endswith(": can't start new thread\n")
    assert here._log is None
    here.end(SimpleNamespace(group_name="0", is_world=True))
