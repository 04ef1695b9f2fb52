"""The life of groups, with ranks as threads."""

import socket
import threading
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.native import NativeCommunicator
from allhands.groups.world import World, use
from allhands.rendezvous.identity import process_identity
from allhands.rendezvous.port import open_port
from allhands.rendezvous.roster import Roster
from harness.ports import reserved_port
from harness.ranks import LIMIT, run_ranks
from harness.stores import DictStore
from harness.worlds import init, total, url_of


def test_init_makes_the_world():
    def body(rank):
        world = dist.group.WORLD
        assert dist.is_initialized()
        assert world is dist.GroupMember.WORLD
        assert (world.rank(), world.size()) == (rank, 3) == (dist.get_rank(), 3)
        assert dist.get_world_size() == 3
        assert (world.group_name, world.group_desc) == ("0", "default_pg")
        assert (dist.get_backend(), world.name()) == ("undefined", "undefined")
        assert dist.get_backend_config() == "cpu:native,cuda:native"
        assert dist.get_pg_count() == 1
        assert world.bound_device_id is None
        return total()

    assert run_ranks(3, body) == [3, 3, 3]


def test_programs_for_gloo_run_on_the_native_engine_where_it_shall_be(monkeypatch):
    monkeypatch.setenv("ALLHANDS_REPLACE_GLOO", "1")

    def body(rank):
        assert isinstance(dist.get_backend_impl(), NativeCommunicator)
        assert (dist.get_backend(), dist.group.WORLD.name()) == ("gloo", "gloo")
        return total()

    assert run_ranks(2, body, backend="gloo") == [1, 1]


def test_a_users_store_is_enough():
    store = DictStore()

    def body(rank):
        init(store, rank, 2)
        return total()

    assert run_ranks(2, body, init=False) == [1, 1]


def test_the_world_can_be_made_again_and_again():
    store = dist.HashStore()

    def body(rank):
        for _ in range(100):
            init(store, rank, 2)
            assert total() == 1
            dist.destroy_process_group()
            assert not dist.is_initialized()

    run_ranks(2, body, init=False)
    assert store.num_keys() <= 2 * (2 + 5)  # counts, and what the last world left


def meet_again_and_again(url):
    """The sums that each of two ranks got in the worlds that it made there."""

    def body(rank):
        sums = []
        for _ in range(100):
            dist.init_process_group(init_method=url, rank=rank, world_size=2)
            sums.append(total())
            dist.destroy_process_group()
        return sums

    return run_ranks(2, body, init=False)


def test_the_ranks_meet_again_and_again_in_a_file(tmp_path):
    assert meet_again_and_again(f"file://{tmp_path}/store") == [[1] * 100] * 2
    assert list(tmp_path.iterdir()) == []


def test_the_ranks_meet_again_and_again_at_a_port():
    host = dist.TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
    assert meet_again_and_again(f"tcp://127.0.0.1:{host.port}") == [[1] * 100] * 2


def test_the_environment_is_the_default_place_to_meet(monkeypatch):
    host = dist.TCPStore("127.0.0.1", 0, is_master=True)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("ALLHANDS_STORE", f"127.0.0.1:{host.port}@1")

    def body(rank):
        dist.init_process_group(rank=rank, world_size=2)
        return total()

    assert run_ranks(2, body, init=False) == [1, 1]


def test_a_rank_that_meets_the_store_of_the_world_before_goes_on_to_the_next():
    with reserved_port() as port:
        before = dist.TCPStore("127.0.0.1", port, is_master=True)
        servers = [before.clone()]

        def body(rank):
            if rank == 0:
                before.wait(["default_pg/0//join/1"])  # rank 1 has come, to the old one
                servers.clear()
                before.__dict__.clear()
            dist.init_process_group(
                init_method=url_of(port, rank, 2), timeout=timedelta(seconds=LIMIT)
            )
            return total()

        assert run_ranks(2, body, init=False) == [1, 1]


@pytest.mark.parametrize(
    "call",
    [
        dist.get_rank,
        dist.get_world_size,
        dist.new_group,
        dist.barrier,
        dist.get_backend,
        lambda: dist.all_reduce(np.zeros(1)),
    ],
)
def test_before_init_calls_say_so(call):
    with pytest.raises(ValueError, match="Default process group has not been initial"):
        call()


def test_without_a_world_no_group_was_made():
    assert dist.get_pg_count() == 0
    run_ranks(1, lambda rank: dist.new_group([0]))
    assert dist.get_pg_count() == 0


def test_before_init_there_is_nothing_to_destroy():
    assert dist.group.WORLD is None
    with pytest.raises(AssertionError, match="Process group cannot be None"):
        dist.destroy_process_group()


PLAIN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def test_who_was_not_launched_is_a_world_of_one(monkeypatch):
    for name in PLAIN:
        monkeypatch.delenv(name, raising=False)
    with use(World()):
        for _ in range(2):
            dist.init_process_group()
            x = np.full(2, 3.0)
            dist.all_reduce(x)
            assert (dist.get_rank(), dist.get_world_size(), x[0]) == (0, 1, 3.0)
            assert dist.new_group([0]).size() == 1
            dist.destroy_process_group()
        monkeypatch.setenv("ALLHANDS_NEEDS_LAUNCHER", "1")
        with pytest.raises(ValueError, match="environment variable RANK expected"):
            dist.init_process_group()


@pytest.mark.parametrize("given", [{"init_method": "env://"}, {"world_size": 1}])
def test_who_asks_for_more_is_not_alone(monkeypatch, given):
    for name in PLAIN:
        monkeypatch.delenv(name, raising=False)
    with use(World()), pytest.raises(ValueError, match="RANK expected"):
        dist.init_process_group(**given)


def test_an_empty_url_is_not_the_default_one(monkeypatch):
    for name in PLAIN:
        monkeypatch.delenv(name, raising=False)
    with (
        use(World()),
        pytest.raises(RuntimeError, match="No rendezvous handler for ://"),
    ):
        dist.init_process_group(init_method="")


def test_node_local_rank_is_the_launchers(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert dist.get_node_local_rank(4) == 4
    with pytest.raises(RuntimeError, match=r"LOCAL_RANK is not in the environment\."):
        dist.get_node_local_rank()
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")  # which is not all of it
    assert dist.get_node_local_rank(4) == 4
    with pytest.raises(ValueError, match="set WORLD_SIZE"):
        dist.get_node_local_rank()
    for name, value in {"PMI_RANK": 1, "PMI_SIZE": 4, "MPI_LOCALRANKID": 2}.items():
        monkeypatch.setenv(name, str(value))
    assert dist.get_node_local_rank() == 2
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert dist.get_node_local_rank(4) == 3


def test_set_timeout_holds_for_later_calls():
    is_over = threading.Event()

    def body(rank):
        dist.group.WORLD.set_timeout(timedelta(seconds=0.2))
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match="rank 1") as caught:
                dist.barrier()
            assert caught.value.ranks == [1]
            is_over.set()
        is_over.wait(LIMIT)

    run_ranks(2, body)


def test_worlds_of_threads_are_separate():
    seen = []

    def other():
        seen.append(dist.is_initialized())

    with use(World()):
        init()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        dist.destroy_process_group()
    assert seen == [False]


def test_who_was_started_by_a_launcher(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not dist.is_torchelastic_launched()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert dist.is_torchelastic_launched()


def test_the_port_for_other_hosts_ends_with_the_world(monkeypatch):
    monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
    port = open_port(2, dist.HashStore())
    number = int(port.endpoints.rpartition(":")[2])
    roster = Roster([process_identity()], b"", port)
    world = World()
    for keeps_port in (True, False):
        world.open(dist.HashStore(), lambda: roster, 0)
        world.roster()
        socket.create_connection(("127.0.0.1", number), LIMIT).close()
        world.destroy(keeps_port=keeps_port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", number), LIMIT)
