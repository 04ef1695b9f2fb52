"""The records of a job in files, however many ranks it has."""

import gc
import json
import os

import pytest

from allhands.debug import command, job_record
from allhands.debug.job_record import read_job
from allhands.elastic.record_collection import Records

LONGEST = 1000


def record(rank, size=3, **more):
    """Of a rank that did nothing."""
    told = {"schema": 1, "rank": rank, "world_size": size, "host": "here", "pid": 1}
    told |= {"reason": "signal", "time_ns": 1, "error": None, "pg_config": {}}
    return json.dumps(told | {"entries": [], "threads": []} | more, indent=1)


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


def test_names_are_shown_as_they_are(tmp_path, capsys):
    file = tmp_path / "rank_0.json"
    group = {"name": "[/b]x[red]", "desc": "", "ranks": "[0]"}
    entry = {"process_group": ["[/b]x[red]", ""], "op": "barrier", "is_p2p": False}
    entry |= {"collective_seq_id": 1, "state": "started", "dtype": "", "count": 0}
    entry |= {"reduce_op": "", "partner": -1, "tag": 0, "async_op": False}
    times = "created", "discovered_started", "discovered_completed"
    entry |= {f"time_{name}_ns": 1 for name in times} | {"thread": 0, "frames": []}
    file.write_text(record(0, pg_config={"[/b]x[red]": group}, entries=[entry]))
    assert command.main([str(file), "--stats"]) == 0
    assert "'[/b]x[red]'" in capsys.readouterr().out
