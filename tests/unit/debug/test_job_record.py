"""The records of a job in files, however many ranks it has."""

import gc
import json
import os

import pytest

from allhands.debug import command, job_record
from allhands.debug.job_record import read_job
from allhands.elastic.record_collection import Records
from allhands.rendezvous.place import MOST_RANKS

LONGEST = 1000


def record(rank, size=3, **more):
    """Of a rank that did nothing."""
    told = {"schema": 1, "rank": rank, "world_size": size, "host": "here", "pid": 1}
    told |= {"reason": "signal", "time_ns": 1, "error": None, "pg_config": {}}
    return json.dumps(told | {"entries": [], "threads": []} | more, indent=1)


def with_group(ranks, name="0", **more):
    """Of a rank in a group."""
    group = {"name": name, "desc": "", "ranks": ranks}
    return record(0, pg_config={name: group}, **more)


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The file of three ranks, each with a record that is as long as one may be."""
    monkeypatch.setattr(job_record, "_LONGEST", LONGEST)
    folder = tmp_path / "attempt_0"
    folder.mkdir()
    for rank in range(3):
        padded = record(rank, padding="")
        padded = record(rank, padding="x" * (LONGEST - 2 - len(padded)))
        (folder / f"rank_{rank}.json").write_text(padded)
    file = tmp_path / "job.json"
    Records(str(folder), str(file)).gather({1: "gone"})
    return file


def test_each_rank_may_have_a_long_record(job):
    assert len(job.read_text()) > 3 * LONGEST - 20
    found = read_job([job])
    assert [dump.rank for dump in found.dumps] == [0, 1, 2]
    assert found.endings == {1: "gone"}
    assert json.loads(job.read_text())["ranks"] == [dump.raw for dump in found.dumps]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x" * LONGEST + "x", f"more than {LONGEST} characters"),
        (" " * LONGEST + "\n{}", f"more than {LONGEST} characters"),
        ('{"ranks": [\n ' + " " * LONGEST, f"more than {LONGEST} characters"),
        ('{"ranks": [\n],' + " " * LONGEST, f"more than {LONGEST} characters"),
        ('{"ranks": [\n' + record(0).replace("\n", ""), "it ends amid the records"),
        ('{"ranks": [\n]', "delimiter"),
        ('{"ranks": [\n{"schema": 2}\n]}', "its schema is 2"),
        ('{"ranks": [\n], "endings": {"one": "gone"}}', "'one'"),
        ('{"ranks": [\n], "endings": {"-1": "gone"}}', r"-1 is not in \[0, "),
        ('{"ranks": null}', "its ranks are None, no list"),
        (record(0, world_size=1 << 62), "is not in"),
        (record(0, world_size=-2), "-2 is not in"),
        (record(1 << 40), "is not in"),
        (with_group("[-1]"), "-1 is not in"),
        (with_group(f"[{1 << 40}]"), "is not in"),
    ],
)
def test_what_is_too_long_or_not_whole_is_refused(job, text, problem):
    job.write_text(text)
    with pytest.raises(ValueError, match=problem) as told:
        read_job([job])
    assert str(told.value).startswith(f"{job}: ")
    assert gc.isenabled()


def test_what_can_be_read_but_once_is_enough(job, capsys):
    reading, writing = os.pipe()
    with open(writing, "wb") as file:
        file.write(job.read_bytes())
    try:
        code = command.main([f"/proc/self/fd/{reading}"])
    finally:
        os.close(reading)
    assert (code, capsys.readouterr().err) == (0, "")


def test_what_is_no_file_in_a_folder_is_not_waited_for(tmp_path):
    (tmp_path / "rank_0.json").write_text(record(0))
    os.mkfifo(tmp_path / "rank_1.json")
    (tmp_path / "rank_2.json").mkdir()
    assert [dump.rank for dump in read_job([tmp_path]).dumps] == [0]


def under_way(group, **more):
    """An entry of a barrier that has not ended."""
    entry = {"process_group": [group, ""], "op": "barrier", "is_p2p": False}
    entry |= {"collective_seq_id": 1, "state": "started", "dtype": "", "count": 0}
    entry |= {"reduce_op": "", "partner": -1, "tag": 0, "async_op": False}
    times = "created", "discovered_started", "discovered_completed"
    entry |= {f"time_{name}_ns": 1 for name in times} | {"thread": 0, "frames": []}
    return entry | more


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[/b]x[red]", "'[/b]x[red]'"),
        ("\x1b]0;title\a", r"'\x1b]0;title\x07'"),
        ("\ud800", r"'\ud800'"),
        ("two\nrows", r"'two\nrows'"),
    ],
)
def test_names_are_shown_on_one_line_without_markup(tmp_path, capsys, name, shown):
    file = tmp_path / "rank_0.json"
    file.write_text(with_group("[0]", name, entries=[under_way(name)]))
    assert command.main([str(file), "--stats"]) == 0
    out = capsys.readouterr().out
    assert shown in out
    assert not set(out) & {"\x1b", "\a", "\ud800"}


def test_many_ranks_without_a_record_are_one_row(tmp_path, capsys):
    file = tmp_path / "rank_0.json"
    entry = under_way("lost", op="all_reduce", dtype=f"float{'9' * 5000}")
    file.write_text(record(0, size=MOST_RANKS, entries=[entry]))
    assert command.main([str(file), "--stats"]) == 0
    assert f"1-{MOST_RANKS - 1}   no record" in capsys.readouterr().out


def test_the_name_of_a_file_cannot_control_the_terminal(tmp_path, capsys):
    file = tmp_path / "\x1b]0;title\a.json"
    file.write_text("{}")
    assert command.main([str(file)]) == 2
    error = capsys.readouterr().err
    assert r"\x1b]0;title\x07.json: it is no flight record" in error
    assert "\x1b" not in error
