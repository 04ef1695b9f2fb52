"""Groups whose ranks take themselves to be on several hosts, with UCX between them."""

import os
import pathlib
import subprocess
import sys

import pytest

from allhands import _C, DistBackendError, settings
from allhands.rendezvous import ucx_choice
from allhands.rendezvous.port import open_port
from allhands.rendezvous.ucx_choice import choose_ucx, ucx_version
from allhands.store import HashStore
from harness import unlike_hosts
from harness.killed_amid import last_rank_killed_amid
from harness.pace import patient
from harness.ranks import Processes
from harness.ucx import with_ucx


@pytest.fixture
def ucx(monkeypatch):
    monkeypatch.setenv("ALLHANDS_TRANSPORT", "ucx")
    monkeypatch.setenv("UCX_TLS", "tcp")


@with_ucx
@pytest.mark.parametrize("hosts", ["01", "0101", "210"])
def test_results_are_the_same_at_all_sizes(ucx, hosts):
    source = """
        from allhands.groups.world import current

        for count in (1, 5000, 16_384, 65_537, 300_001, 4_000_000):
            given = (np.arange(count) % 97).astype(np.float32) + rank
            dist.all_reduce(given)
            wanted = (np.arange(count) % 97) * size + sum(range(size))
            assert (given == wanted).all()
            parts = [np.empty(count, np.int32) for _ in range(size)]
            dist.all_gather(parts, np.arange(count, dtype=np.int32) + rank)
            for source, part in enumerate(parts):
                assert (part == np.arange(count) + source).all()
            left, right = (rank - 1) % size, (rank + 1) % size
            mine = np.arange(count, dtype=np.int64) * (rank + 1)
            came = np.zeros_like(mine)
            sent = dist.isend(mine, right, tag=count)
            dist.recv(came, left, tag=count)
            sent.wait()
            assert (came == np.arange(count) * (left + 1)).all()
        give(current().roster().port.native.num_sent_by_ucx())
        dist.destroy_process_group()
        """
    with Processes(len(hosts), source, hosts=hosts) as processes:
        assert sum(count > 100 for count in processes.join()) >= 2


@with_ucx
def test_a_process_joins_one_world_after_the_other(ucx):
    source = """
        for turn in range(3):
            for count in (10, 1_000_000):
                given = np.full(count, rank + 1.0)
                dist.all_reduce(given)
                assert (given == 3).all()
            dist.destroy_process_group()
            store = FileStore(f"{folder}/{turn}", size)
            dist.init_process_group(store=store, rank=rank, world_size=size)
        """
    with Processes(2, source, hosts="01") as processes:
        processes.join()


@with_ucx
def test_threads_and_forked_children_do_no_harm(ucx):
    source = """
        import threading

        def exchange(group, value):
            for _ in range(20):
                given = np.full(200_000, value + rank)
                dist.all_reduce(given, group=group)
                assert (given == 2 * value + 1).all()

        groups = [dist.new_group() for _ in range(3)]
        threads = [
            threading.Thread(target=exchange, args=(group, value))
            for value, group in enumerate(groups)
        ]
        for thread in threads:
            thread.start()
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        for thread in threads:
            thread.join()
        exchange(None, 5)
        dist.destroy_process_group()
        """
    with Processes(2, source, hosts="01") as processes:
        processes.join()


@with_ucx
@pytest.mark.parametrize("hosts", ["01", "0011"])
def test_who_is_killed_during_a_transfer_is_named_within_a_second(ucx, hosts):
    then = """
        noticed = time.monotonic()
        given[:] = 7  # nothing writes to it any more
        time.sleep(0.1)
        assert (given == 7).all()
        give((noticed, error.ranks))
        """
    killed, given = last_rank_killed_amid(hosts, then)
    for noticed, ranks in given:
        assert noticed - killed < patient(1, killed)
        assert ranks == [len(hosts) - 1]


@with_ucx
def test_a_broken_socket_is_replaced_while_bodies_are_on_their_way(ucx):
    source = """
        from allhands.groups.world import current
        roster = current().roster()
        peer = roster.identities[1 - rank]
        for turn in range(30):
            given = np.full(500_000, rank + 1.0)
            work = dist.all_reduce(given, async_op=True)
            if turn % 3 == rank:
                roster.port.native.break_socket(peer.endpoints, peer.pid, peer.start)
            work.wait()
            assert (given == 3).all()
        dist.destroy_process_group()
        """
    with Processes(2, source, hosts="01") as processes:
        processes.join()


@with_ucx
@pytest.mark.parametrize("hosts", ["01", "0110"])
def test_ucx_that_fails_amid_bodies_loses_none(ucx, hosts):
    source = """
        import socket
        from allhands.groups.world import current

        roster = current().roster()
        ports = {
            int(end.rpartition(":")[2])
            for each in roster.identities
            for end in each.endpoints.split(",")
        }

        def break_ucx():
            for name in os.listdir("/proc/self/fd"):
                try:
                    other = socket.socket(fileno=os.dup(int(name)))
                    ends = other.getpeername(), other.getsockname()
                except OSError:
                    continue
                if other.family == socket.AF_INET and not ports & {
                    end[1] for end in ends
                }:
                    other.shutdown(socket.SHUT_RDWR)

        for turn in range(12):
            given = np.full(2_000_000, rank + turn)
            works = [dist.all_reduce(given, async_op=True)]
            peer = (rank + size // 2) % size
            mine, came = np.full(500_000, rank + 7 * turn), np.zeros(500_000, int)
            works += [dist.isend(mine, peer), dist.irecv(came, peer)]
            if turn == 4 and rank == 0:
                break_ucx()
            for work in works:
                work.wait()
            assert (given == size * turn + sum(range(size))).all()
            assert (came == peer + 7 * turn).all()
            if turn == 5:
                dist.barrier()
                before = roster.port.native.num_sent_by_ucx()
        assert rank or roster.port.native.num_sent_by_ucx() == before > 0
        dist.destroy_process_group()
        """
    with Processes(len(hosts), source, hosts=hosts) as processes:
        processes.join()


@with_ucx
def test_ranks_that_do_not_all_use_it_say_so(monkeypatch):
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("ALLHANDS_HEARTBEAT", "1")
    found = unlike_hosts.errors("ALLHANDS_TRANSPORT", ["tcp", "ucx"])
    for rank, text in enumerate(found):
        assert f"rank {1 - rank}" in text
        assert ("it does not use UCX", "this process does not")[1 - rank] in text
        assert "libucx0" in text
        assert "set ALLHANDS_TRANSPORT alike on every host" in text


def test_what_is_missing_is_named_with_the_packages(tmp_path):
    (tmp_path / "libucp.so.0").write_text("no library")
    program = """
from allhands import _C, DistBackendError
try:
    _C.load_ucx("libucp.so.0")
except DistBackendError as error:
    print(error)
"""
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "there is no UCX (" in told.stdout
    assert "Debian and Ubuntu: libucx0" in told.stdout
    assert "ALLHANDS_TRANSPORT=tcp" in told.stdout


@with_ucx
def test_the_signals_of_crashes_stay_the_programs():
    program = """
import faulthandler, os, signal
faulthandler.enable()
from allhands.rendezvous.ucx_choice import ucx_version
ucx_version()
os.kill(os.getpid(), signal.SIGSEGV)
"""
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert told.returncode == -11
    assert "Fatal Python error: Segmentation fault" in told.stderr
    assert "backtrace" not in told.stderr


def test_auto_takes_it_only_where_a_port_is_up(monkeypatch, tmp_path):
    monkeypatch.setenv("ALLHANDS_TRANSPORT", "auto")
    monkeypatch.setattr(ucx_choice, "_VERBS_PORTS", str(tmp_path))
    loaded = []
    monkeypatch.setattr(_C, "load_ucx", loaded.append)
    assert choose_ucx() == "no"
    port = pathlib.Path(tmp_path, "mlx5_0", "ports", "1")
    port.mkdir(parents=True)
    (port / "state").write_text("1: DOWN\n")
    assert choose_ucx() == "no"
    assert not loaded
    (port / "state").write_text("4: ACTIVE\n")
    assert choose_ucx() == "offered"
    assert loaded == ["libucp.so.0"]
    monkeypatch.setenv("ALLHANDS_TLS", "1")
    assert choose_ucx() == "no"

    def missing(library):
        raise DistBackendError("there is no UCX")

    monkeypatch.delenv("ALLHANDS_TLS")
    monkeypatch.setattr(_C, "load_ucx", missing)
    assert choose_ucx() == "no"


def test_it_encrypts_nothing(monkeypatch):
    monkeypatch.setenv("ALLHANDS_TRANSPORT", "ucx")
    monkeypatch.setenv("ALLHANDS_TLS", "1")
    monkeypatch.setenv("ALLHANDS_SECRET", "a")
    monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
    with pytest.raises(ValueError, match=settings.tls.name + "=1 asks for encryption"):
        open_port(2, HashStore())


def test_a_wheel_is_asked_where_the_system_has_none(monkeypatch):
    asked = []

    def load(library):
        asked.append(library)
        if library == "libucp.so.0":
            raise DistBackendError("there is no UCX")
        return "1.22.0"

    monkeypatch.setattr(_C, "load_ucx", load)
    monkeypatch.setattr(ucx_choice, "_of_wheels", lambda: iter(["/a/libucp.so.0"]))
    assert ucx_version() == "1.22.0"
    assert asked == ["libucp.so.0", "/a/libucp.so.0"]
    monkeypatch.setattr(ucx_choice, "_of_wheels", lambda: iter([]))
    with pytest.raises(DistBackendError, match="there is no UCX"):
        ucx_version()
