"""The store of torchrun's agent as the place where ranks meet."""

import json
import subprocess
import sys
from datetime import timedelta

import pytest

from allhands.errors import DistNetworkError, DistStoreError
from allhands.rendezvous import rendezvous
from allhands.rendezvous.identity import process_identity
from allhands.store import TCPStore
from harness.ports import reserved_port

torch = pytest.importorskip("torch")
LONG = timedelta(seconds=200)


@pytest.fixture
def agent(monkeypatch):
    """torch's store, and the environment that torchrun makes for it."""
    store = torch.distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    set_place(monkeypatch, store.port)
    return store


def set_place(monkeypatch, port):
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.delenv("ALLHANDS_STORE", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setenv("WORLD_SIZE", "2")


def meet(rank, timeout=LONG):
    store, met_rank, size = next(iter(rendezvous("env://", rank, timeout=timeout)))
    assert (met_rank, size) == (rank, 2)
    return store


def test_the_ranks_share_a_part_of_it(agent):
    first = meet(0)
    second = meet(1)
    first.set("k", "v")
    assert second.get("k") == b"v"
    assert second.add("n", 2) == 2
    assert first.compare_set("n", "2", "7") == b"7"
    assert not agent.check(["k"])
    assert first.timeout == LONG
    with pytest.raises(DistStoreError, match="wait timeout after 10ms"):
        first.wait(["x"], timedelta(milliseconds=10))
    first.set_timeout(timedelta(milliseconds=10))
    with pytest.raises(DistStoreError, match="wait timeout after 10ms"):
        first.get("x")


def test_what_an_earlier_start_left_is_not_read(agent):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale = json.dumps(process_identity()._replace(pid=ended.pid))
    agent.set("allhands/rank_0", stale)
    agent.set(f"allhands/{stale}/k", "stale")
    with pytest.raises(DistStoreError) as raised:
        meet(1, timedelta(seconds=0.2))
    text = str(raised.value)
    assert "rank 1 (this process) timed out: waited 0.2 s (its timeout) for" in text
    assert f"did not come (pid {ended.pid}, which was rank 0, has ended)" in text
    assert not meet(0).check(["k"])
    assert not meet(1).check(["k"])


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff",
        b"1",
        b"{}",
        b'["host", 1, 2]',
        b'["host", 1, 2, "", 3]',
        b'["host", "1", 2, ""]',
        b'["host", true, 2, ""]',
        b'["host", 0, 2, ""]',
        b'["host", 2147483648, 2, ""]',
        b'["host", 1, -1, ""]',
        b'["host", 1, 18446744073709551616, ""]',
        b'["host", 1, 2.5, ""]',
        b'[1, 1, 2, ""]',
        b'{"host": 0, "1": 0, "2": 0, "": 0}',
        b"[" * 100_000,
    ],
)
def test_what_rank_0_has_not_written_is_refused(agent, said):
    agent.set("allhands/rank_0", said)
    with pytest.raises(DistStoreError, match="which is no process's identity"):
        meet(1)
    meet(0).set("k", "v")  # writes over it
    assert meet(1).get("k") == b"v"


def test_a_rank_that_waits_for_long_says_so(agent, monkeypatch, capfd):
    monkeypatch.setenv("ALLHANDS_PATIENCE", "0.1")
    with pytest.raises(DistStoreError, match="for rank 0, which did not come"):
        meet(1, timedelta(seconds=0.5))
    line = "rank 1 (this process) has waited 0.1 s (limit 0.5 s) for rank 0, which"
    assert capfd.readouterr().err.count(line) == 1


def test_a_store_of_ours_is_none_of_an_agents(monkeypatch):
    other = TCPStore("127.0.0.1", 0, is_master=True)
    set_place(monkeypatch, other.port)
    with pytest.raises(DistNetworkError, match="there is no store of torchrun's at"):
        meet(0, timedelta(seconds=1))


def test_nobody_listens(monkeypatch, capfd):
    with reserved_port() as port:
        set_place(monkeypatch, port)
        with pytest.raises(DistNetworkError, match=f"no store .* at 127.0.0.1:{port}"):
            meet(0, timedelta(seconds=1))


def test_without_torch_it_says_what_to_do(agent, monkeypatch):
    monkeypatch.setitem(sys.modules, "allhands.store.torch_store", None)
    with pytest.raises(DistNetworkError, match="torch has to be installed here"):
        meet(0)


def test_a_port_out_of_range(agent, monkeypatch):
    monkeypatch.setenv("MASTER_PORT", "99999")
    with pytest.raises(ValueError, match="from 0 to 65535 but was 99999"):
        meet(0)
