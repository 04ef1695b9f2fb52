"""Processes whose stdin, stdout or stderr is closed, or takes nothing."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from harness.launcher import environment, program
from harness.ranks import LIMIT

RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks/results/operations.json"
CLOSED = ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"]

TOLD = """
    import json, os, sys
    import allhands as dist

    dist.init_process_group()
    dist.barrier()
    files = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)}
    with open(sys.argv[1] + f".{dist.get_rank()}", "w") as out:
        json.dump(files, out)
"""


def shell(command: str, closed: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["sh", "-c", f"{sys.executable} {command} {closed}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment(**variables),
    )


@pytest.mark.parametrize("closed", CLOSED)
def test_the_launcher_runs_a_job(tmp_path, closed):
    path = program(tmp_path, TOLD)
    done = shell(f"-m allhands.run -n 2 {path} {tmp_path}/told", closed)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("told.*"))) == 2


@pytest.mark.parametrize("command", ["info", "info --json", "--version", "run"])
@pytest.mark.parametrize("closed", CLOSED)
def test_commands_do_without(closed, command):
    done = shell(f"-m allhands {command}", closed)
    assert done.returncode == (2 if command == "run" else 0)
    assert "Traceback" not in done.stderr


def test_letters_that_stdout_lacks_are_written_with_backslashes():
    """It was a UnicodeEncodeError."""
    done = shell(
        "-m allhands info", "", PYTHONIOENCODING="ascii", ALLHANDS_DUMPS="/tmp/größe"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"ALLHANDS_DUMPS=/tmp/gr\xf6\xdfe" in done.stdout


def test_what_the_user_has_chosen_for_such_letters_stays():
    done = shell(
        "-m allhands info",
        "",
        PYTHONIOENCODING="ascii:namereplace",
        ALLHANDS_DUMPS="/tmp/größe",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"gr\N{LATIN SMALL LETTER O WITH DIAERESIS}" in done.stdout


@pytest.mark.parametrize("closed", CLOSED)
def test_nothing_of_the_engine_takes_their_place(tmp_path, closed):
    path = program(tmp_path, TOLD)
    done = shell(f"{path} {tmp_path}/told", closed)
    assert done.returncode == 0
    files = json.loads((tmp_path / "told.0").read_text())
    for fd in re.findall(r"\d(?=[<>])", closed):
        assert files[fd] == os.devnull


@pytest.mark.parametrize("command", ["info", "info --json", "info --ways"])
def test_a_full_disk_is_an_error_in_one_line(command):
    done = shell(f"-m allhands {command}", "1>/dev/full")
    assert done.returncode == 1
    assert done.stderr == "allhands info: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    "command",
    ["info", "info --ways", "info --json", f"bench --from {RESULTS}", "debug {record}"],
)
def test_a_reader_that_has_seen_enough_ends_a_command_in_silence(tmp_path, command):
    record = tmp_path / "record.json"
    if "{record}" in command:
        job = f"""
            import allhands as dist

            dist.init_process_group()
            dist.debug.dump({str(record)!r})
        """
        assert shell(program(tmp_path, job), "").returncode == 0
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "allhands", *command.format(record=record).split()],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=LIMIT,
        env=environment(),
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
