"""`allhands bench` as its users meet it."""

import json
import os
import re
import signal
import subprocess
import tempfile

import pytest

import allhands as dist
from allhands.bench.peers.mpi import Mpi
from harness.bench import command, run_bench
from harness.launcher import children, environment, is_alive, wait_until
from harness.ranks import LIMIT

TINY = ["--ranks", "2", "--rounds", "2", "--min-time", "0.0002"]
OPS = [
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather_single",
    "all_gather",
    "reduce_scatter_single",
    "reduce_scatter",
    "all_to_all_single",
    "all_to_all",
    "gather",
    "scatter",
    "send_recv",
    "exchange",
    "barrier",
]


def bench(*options, **variables):
    return run_bench(*TINY, *options, **variables)


def measured(path, *options, **variables):
    done = bench("--json", str(path), *options, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stdout


def check(record, peer):
    """Every operation has a verified figure of `peer`."""
    rows = [row for row in record["results"] if row["peer"] == peer]
    assert [row["op"] for row in rows] == OPS
    assert {row["size"] for row in rows} == {0, 4096}
    for row in rows:
        assert len(row["blocks"]) == 2
        assert all(0 < seconds < 10 for seconds in row["blocks"])
        assert row["num_samples"] >= 2


def test_every_operation_of_ours(tmp_path):
    options = ["--ops", "all", "--sizes", "4K", "--peers", "none"]
    record, text = measured(tmp_path / "figures.json", *options)
    check(record, "allhands")
    assert record["effort"] == {"rounds": 2, "min_time": 0.0002}
    assert record["machine"]["affinity"] == sorted(os.sched_getaffinity(0))
    assert "all_to_all_single, 2 ranks, float32, numpy, sync" in text
    assert "4 KiB" in text


def test_a_temporary_folder_whose_name_is_too_long_for_sockets(tmp_path):
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    done = bench("--ops", "barrier", "--peers", "none", TMPDIR=str(folder))
    assert done.returncode == 0, done.stderr


def test_a_run_that_was_kept_is_shown_again(tmp_path):
    kept = tmp_path / "figures.json"
    options = ["--ops", "all_reduce,broadcast", "--sizes", "8,4K", "--peers", "none"]
    _, first = measured(kept, *options)
    done = bench(*options, "--from", str(kept))
    assert done.returncode == 0, done.stderr
    shown = [line for line in done.stdout.splitlines() if line.strip()]
    assert shown == [line for line in first.splitlines() if line.strip()]
    done = bench("--ops", "broadcast", "--sizes", "8", "--from", str(kept))
    assert "4 KiB" not in done.stdout
    assert "all_reduce" not in done.stdout
    done = bench("--ops", "gather", "--from", str(kept))
    assert done.returncode == 1
    assert "the file of --from has none of the cells asked for" in done.stderr
    done = bench("--from", str(tmp_path / "none.json"))
    assert done.returncode == 2
    assert "No such file or directory" in done.stderr


@pytest.mark.parametrize("mode", ["async", "persistent"])
def test_forms(tmp_path, mode):
    options = ["--ops", "all_reduce,broadcast", "--sizes", "1K", "--modes", mode]
    options += ["--dtypes", "float64,int8", "--peers", "none"]
    record, text = measured(tmp_path / "figures.json", *options)
    forms = [(row["op"], row["dtype"], row["mode"]) for row in record["results"]]
    assert forms == [
        (op, dtype, mode)
        for op in ("all_reduce", "broadcast")
        for dtype in ("float64", "int8")
    ]
    for row in record["results"]:
        if mode == "async" or hasattr(dist, f"{row['op']}_init"):
            assert row["median"] > 0
        else:
            assert row["absent"] == f"allhands has no {row['op']}_init"
    assert f"broadcast, 2 ranks, int8, numpy, {mode}" in text


def test_gloo(tmp_path):
    pytest.importorskip("torch")
    options = ["--ops", "all", "--sizes", "4K", "--peers", "gloo"]
    record, text = measured(tmp_path / "figures.json", *options)
    check(record, "allhands")
    check(record, "gloo")
    assert "times as long as allhands" in text
    assert record["machine"]["versions"]["torch"] in text


@pytest.mark.skipif(bool(Mpi.missing()), reason=Mpi.missing() or "there")
def test_mpi(tmp_path):
    options = ["--ops", "all", "--sizes", "4K", "--peers", "mpi"]
    record, text = measured(tmp_path / "figures.json", *options)
    check(record, "allhands")
    check(record, "mpi")
    assert re.search("MPI (MPICH|Open MPI)", text)


def test_what_is_not_installed_is_said_with_the_remedy(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.modules['torch'] = sys.modules['mpi4py'] = None"
    )
    tiny = ["--ops", "barrier"]
    done = bench(*tiny, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "gloo was not measured: torch is not installed; pip" in done.stdout
    assert "mpi was not measured: mpi4py is not installed; pip" in done.stdout
    done = bench(*tiny, "--peers", "gloo", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "gloo: torch is not installed; pip install torch" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--ops", "all_reduce,frob", "'frob' is not known; want all, or of all_reduce"),
        ("--sizes", "8,many", "size is 'many'; want bytes such as 8, 16K"),
        ("--ranks", "1", "'1'; want a number from 2 up"),
        ("--peers", "gloo,frob", "'frob' is not known; want allhands, gloo, mpi, sock"),
        ("--peers", "gloo:ofi", "gloo has no other forms, such as 'ofi'"),
        ("--peers", "mpi:/no", "mpi:/no: there is no /no/bin/mpiexec; want mpi:FOLDER"),
        ("--peers", "sockets", "sockets is measured between hosts; add --hosts 2"),
        ("--min-time", "0", "'0'; want seconds, above 0 to 10"),
        ("--json", "no/such/x.json", "be written: there is no folder 'no/such'"),
        ("--plot", "/proc", "'/proc' cannot be written: it is a folder"),
    ],
)
def test_wrong_input_is_named(option, value, problem):
    done = bench(option, value)
    assert done.returncode == 2
    assert problem in done.stderr


SLOW = ["--ops", "all_reduce", "--sizes", "8", "--peers", "none", "--rounds", "100000"]


def under_way(process):
    """The process ids of the ranks, once all are there."""
    found = []
    while len(found) < 2:
        assert process.poll() is None
        found = children(process.pid, "allhands.bench.worker")
    return found


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_the_command(sent):
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,  # short, so that it is used
        subprocess.Popen(
            command(*TINY, *SLOW),
            env=environment(TMPDIR=folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        ranks = under_way(process)
        process.send_signal(sent)
        _, error = process.communicate(timeout=LIMIT)
        if sent != signal.SIGKILL:
            assert process.returncode == 130
            assert error.endswith("interrupted\n")
            assert not any(map(is_alive, ranks))
            assert not os.listdir(folder)
        wait_until(lambda: not any(map(is_alive, ranks)), LIMIT, f"end of {ranks}")


def test_a_rank_that_dies_ends_it():
    with subprocess.Popen(
        command(*TINY, *SLOW),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        ranks = under_way(process)
        os.kill(ranks[1], signal.SIGKILL)
        _, error = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "allhands: a rank " in error
    assert not any(map(is_alive, ranks))


def test_what_more_ranks_cost(tmp_path):
    path, picture = tmp_path / "figures.json", tmp_path / "figures.png"
    done = run_bench("--rounds=2", "--scale=2,4", f"--json={path}", f"--plot={picture}")
    assert (done.returncode, done.stderr) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert max(map(len, done.stdout.split("Linux")[0].splitlines()[:-2])) <= 80
    record = json.loads(path.read_text())
    assert record["rounds"] == 2
    two, four = record["scale"]
    assert (two.pop("ranks"), four.pop("ranks")) == (2, 4)
    for row in two, four:
        assert all(len(values) == 2 for values in row.values())
        assert all(value > 0 for values in row.values() for value in values)
    # A rank that meets others asks the store for something, and tells it who it is.
    assert min(two["requests"]) >= 2
    assert min(four["requests"]) > min(two["requests"])
    assert min(four["store_bytes"]) > min(two["store_bytes"]) > 100
    assert min(four["segment"]) >= max(two["segment"]) > 4096
    again = run_bench(f"--from={path}")
    assert again.returncode == 2
    assert "it has what --scale measured" in again.stderr


def test_ranks_that_fail_as_they_are_scaled_say_why():
    done = run_bench("--rounds=2", "--scale=3", ALLHANDS_TUNING="no_such_number=1")
    assert done.returncode == 1
    assert done.stderr.startswith("allhands bench: 3 ranks failed:\n")
    assert "no_such_number" in done.stderr


def test_what_scale_does_not_go_with():
    done = run_bench("--rounds=2", "--scale=2", "--sizes=8")
    assert done.returncode == 2
    assert "--scale does not go with --sizes; it takes --rounds, --json, --plot" in (
        " ".join(done.stderr.split())
    )
