"""The life of groups, with ranks as threads."""

import re
import socket
import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.native import NativeCommunicator
from allhands.groups.world import World, current, use
from allhands.rendezvous.identity import process_identity
from allhands.rendezvous.port import open_port
from allhands.rendezvous.roster import Roster
from harness.pace import patient
from harness.ports import reserved_port
from harness.ranks import LIMIT, run_ranks
from harness.stores import DictStore


def total(group=None):
    """The sum of the members' global ranks, by all_reduce."""
    array = np.array([dist.get_rank()])
    dist.all_reduce(array, group=group)
    return int(array[0])


def init(store=None, rank=0, world_size=1, **options):
    dist.init_process_group(
        store=store or dist.HashStore(), rank=rank, world_size=world_size, **options
    )


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


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"init_method": "env://"}, AssertionError, "both init_method and store"),
        ({"world_size": 0}, AssertionError, "world_size must be positive if using"),
        ({"rank": -1}, AssertionError, "rank must be non-negative if using store"),
        ({"rank": 1}, ValueError, r"rank must be in \[0, 1\), got 1"),
        ({"world_size": 10**9}, ValueError, "world_size must be at most 1048576"),
        ({"rank": "0"}, TypeError, "rank must be an int, got '0'"),
        ({"world_size": "1"}, TypeError, "world_size must be an int, got '1'"),
        ({"backend": "env://"}, ValueError, "'env://' is no backend but a URL: pass"),
        ({"backend": "nope"}, AssertionError, "Unknown backend type nope"),
        ({"timeout": 5}, TypeError, r"of type datetime\.timedelta, got 5"),
    ],
)
def test_init_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        init(**arguments)
    assert not dist.is_initialized()


def test_init_twice_is_refused():
    def body(rank):
        with pytest.raises(
            ValueError, match="initialize the default process group twi"
        ):
            init()

    run_ranks(1, body)


def test_init_names_the_ranks_that_did_not_come():
    store = dist.HashStore()
    message = r"waited 1 s .* 2 of 4 ranks, which did not come: \[0, 3\]"
    start = threading.Barrier(2)

    def some(rank):
        if rank in (1, 2):
            start.wait(LIMIT)
            with pytest.raises(dist.DistStoreError, match=f"rank {rank}.*{message}"):
                init(store, rank, 4, timeout=timedelta(seconds=1))
            assert not dist.is_initialized()

    def everyone(rank):
        init(store, rank, 4)
        return total()

    run_ranks(4, some, init=False)
    assert run_ranks(4, everyone, init=False) == [6] * 4


def test_init_tells_of_two_processes_with_one_rank():
    store = dist.HashStore()
    start = threading.Barrier(3)

    def body(number):
        rank = min(number, 1)
        start.wait(LIMIT)
        with pytest.raises(dist.DistStoreError, match="did not come") as caught:
            init(store, rank, 3, timeout=timedelta(seconds=1.5 if rank else 0.5))
        return str(caught.value)

    first, *_ = run_ranks(3, body, init=False)
    assert "1 of 3 ranks, which did not come: [2]; several processes say" in first
    assert first.endswith("that they are rank 1")


def test_init_tells_of_different_world_sizes():
    store = dist.HashStore()

    def body(rank):
        message = rf"rank {rank} .* has world_size {2 + rank}, rank {1 - rank} has"
        with pytest.raises(ValueError, match=f"{message} {3 - rank};"):
            init(store, rank, 2 + rank, timeout=timedelta(seconds=LIMIT))

    run_ranks(2, body, init=False)


def test_a_rank_learns_at_once_that_rank_0_waits_for_more():
    store = dist.HashStore()

    def body(rank):
        error = (dist.DistStoreError, ValueError)[rank]
        limit = timedelta(seconds=[1, LIMIT][rank])
        with pytest.raises(error, match=r"world_size 2, rank 0 has 3|come: \[2\]|up"):
            init(store, rank, 3 - rank, timeout=limit)

    run_ranks(2, body, init=False)


def url_of(port, rank, size):
    return f"tcp://127.0.0.1:{port}?rank={rank}&world_size={size}"


def test_every_rank_names_who_is_missing_though_rank_0_hosts_the_store():
    def body(rank, port):
        start = time.monotonic()
        with pytest.raises(dist.DistStoreError) as caught:
            dist.init_process_group(
                init_method=url_of(port, rank, 4),
                timeout=timedelta(seconds=LIMIT if rank else 1),
            )
        assert time.monotonic() - start < patient(10, start)
        return str(caught.value)

    with reserved_port() as port:
        texts = run_ranks(3, lambda rank: body(rank, port), init=False)
    wait = (
        "timed out: waited 1 s (its timeout) for 1 of 4 ranks, which did not come: [3]"
    )
    assert texts[0] == f"init_process_group: rank 0 (this process) {wait}"
    for rank in (1, 2):
        start = f"init_process_group: rank {rank} (this process) heard from rank 0: it"
        assert texts[rank] == f"{start} {wait}"


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


def test_a_store_that_is_lost_once_rank_0_has_come_is_not_waited_for(monkeypatch):
    monkeypatch.setenv("ALLHANDS_PATIENCE", "0.05")
    with reserved_port() as port:
        servers = [dist.TCPStore("127.0.0.1", port, is_master=True)]
        servers[0].set("default_pg/0//1/identity/0", '[3, "host", 1, 1, ""]')

        def body(rank):
            if rank == 0:  # rank 1 looks at this once it waits for the others
                servers[0].wait(["default_pg/0//1/num_told"])
                servers.clear()
                return
            start = time.monotonic()
            with pytest.raises(dist.DistNetworkError, match=r"rank 1 .*lost the store"):
                dist.init_process_group(
                    init_method=url_of(port, rank, 3), timeout=timedelta(seconds=LIMIT)
                )
            assert time.monotonic() - start < patient(5, start)

        run_ranks(2, body, init=False)


def test_init_tells_of_a_store_that_was_lost():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    store = dist.TCPStore("127.0.0.1", server.port)
    timer = threading.Timer(0.2, lambda held: held.clear(), [[server]])
    del server
    timer.start()
    with pytest.raises(dist.DistNetworkError, match=r"rank 0 .*lost the store before"):
        init(store, 0, 2, timeout=timedelta(seconds=LIMIT))
    timer.join()


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


def test_groups_have_their_own_ranks():
    def body(rank):
        group = dist.new_group([2, 0], group_desc="evens")
        if rank == 1:
            return group
        assert (group.group_name, group.group_desc) == ("1", "evens")
        assert dist.get_process_group_ranks(group) == [0, 2]
        assert dist.get_rank(group) == dist.get_group_rank(group, rank) == rank // 2
        assert dist.get_global_rank(group, 1) == 2
        assert dist.get_world_size(group) == 2
        assert dist.get_pg_count() == 2
        return total(group)

    assert run_ranks(3, body) == [2, dist.GroupMember.NON_GROUP_MEMBER, 2]


def test_sort_ranks_false_keeps_the_order():
    def body(rank):
        group = dist.new_group([2, 0, 1], sort_ranks=False)
        gathered = [np.zeros(1, int) for _ in range(3)]
        dist.all_gather(gathered, np.array([rank]), group=group)
        return [int(part[0]) for part in gathered]

    assert run_ranks(3, body) == [[2, 0, 1]] * 3


def test_ranks_may_be_any_integers():
    assert run_ranks(2, lambda rank: total(dist.new_group(np.arange(2)))) == [1, 1]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([0, 0], r"must not contain duplicate entries, got \[0, 0\]"),
        ([5], r"Rank 5 is out of range. Valid ranks are 0 to 1 \(world_size=2\)"),
        ([-1], "Rank -1 is out of range"),
        ([0, 1, 2], "world size should be less or equal to the world size set by init"),
        ([], "must not be empty"),
    ],
)
def test_new_group_refuses(ranks, message):
    def body(rank):
        with pytest.raises(ValueError, match=message):
            dist.new_group(ranks)
        return total(dist.new_group())  # nothing was counted

    assert run_ranks(2, body) == [1, 1]


@pytest.mark.parametrize("ranks", [0, "01", [0.0]])
def test_ranks_must_be_integers(ranks):
    def body(rank):
        with pytest.raises(TypeError, match="ranks must be a list of ints, got"):
            dist.new_group(ranks)

    run_ranks(1, body)


def test_a_group_inherits_the_worlds_timeout():
    def body(rank):
        assert dist.new_group().timeout == timedelta(seconds=7)
        assert dist.new_group(timeout=timedelta(1)).timeout == timedelta(days=1)

    run_ranks(1, body, timeout=7)


def test_members_alone_can_make_a_group():
    def body(rank):
        if rank == 0:
            return None
        for _ in range(rank):  # different histories
            dist.new_group([rank], use_local_synchronization=True)
        group = dist.new_group([1, 2], use_local_synchronization=True)
        again = dist.new_group([1, 2], use_local_synchronization=True)
        assert group.group_name != again.group_name
        return total(group), total(again), group.group_name, again.group_name

    results = run_ranks(3, body)
    assert results[1] == results[2]
    assert results[1][:2] == (3, 3)


def test_local_synchronization_gives_non_members_none():
    def body(rank):
        made = dist.new_group([1], use_local_synchronization=True)
        dist.new_group([0, 1])
        return made is None

    assert run_ranks(2, body) == [True, False]


def test_local_groups_do_not_shift_the_names_of_others():
    def body(rank):
        if rank == 1:
            dist.new_group([1], use_local_synchronization=True)
        return dist.new_group().group_name

    assert run_ranks(2, body) == ["1", "1"]


def test_a_rank_destroys_a_group_that_it_never_used():
    is_open = threading.Event()

    def body(rank):
        group = dist.new_group()
        if rank == 0:
            dist.irecv(np.zeros(1), 1, group)  # so that it has used the group
            is_open.set()
            with pytest.raises(dist.RankFailedError, match=r"rank 1 .* left the group"):
                total(group)
        else:
            is_open.wait(LIMIT)
            start = time.monotonic()
            dist.destroy_process_group(group)
            assert time.monotonic() - start < patient(1, start)
        return total()

    assert run_ranks(2, body) == [1, 1]


def test_destroying_a_group_ends_it():
    def body(rank):
        group = dist.new_group()
        total(group)
        dist.barrier()
        dist.destroy_process_group(group)
        with pytest.raises(ValueError, match="Invalid process group specified"):
            dist.destroy_process_group(group)
        for call in (dist.get_rank, dist.get_process_group_ranks, total):
            with pytest.raises(ValueError, match="is not registered, please create"):
                call(group)
        with pytest.raises(ValueError, match="it was destroyed"):
            group.get_group_store()
        return total()

    assert run_ranks(2, body) == [1, 1]


def test_destroying_the_world_ends_all_groups():
    def body(rank):
        group = dist.new_group()
        dist.destroy_process_group()
        assert dist.group.WORLD is None
        with pytest.raises(ValueError, match="is not registered"):
            dist.get_rank(group)
        init()
        assert dist.new_group().group_name == "1"  # names start again

    run_ranks(1, body)


def test_destroy_finishes_what_is_queued():
    def body(rank):
        array = np.array([rank])
        work = dist.all_reduce(array, async_op=True)
        dist.destroy_process_group()
        assert work.is_success()
        return int(array[0])

    assert run_ranks(3, body) == [3, 3, 3]


def test_not_in_the_group():
    outside = dist.GroupMember.NON_GROUP_MEMBER

    def body(rank):
        group = dist.new_group([0])
        if rank == 0:
            return
        assert group == outside == -100
        assert (dist.get_rank(group), dist.get_world_size(group)) == (-1, -1)
        assert dist.destroy_process_group(group) is None
        for ask in (dist.get_backend, dist.get_backend_config):
            with pytest.raises(ValueError, match="Invalid process group specified"):
                ask(group)
        with pytest.raises(ValueError, match="Invalid process group specified"):
            dist.get_process_group_ranks(group)
        with pytest.raises(ValueError, match="process group"):
            dist.get_group_rank(group, 0)

    run_ranks(2, body)


def test_what_is_no_group_is_refused():
    def body(rank):
        for thing in (5, "x", object()):
            with pytest.raises(ValueError, match="is not registered, please create"):
                dist.get_rank(thing)
        with pytest.raises(ValueError, match="Invalid process group specified"):
            dist.destroy_process_group("x")

    run_ranks(1, body)


def test_rank_translation():
    def body(rank):
        world = dist.group.WORLD
        assert dist.get_group_rank(world, 99) == 99
        assert dist.get_global_rank(world, 99) == 99
        group = dist.new_group([1])
        if rank == 1:
            with pytest.raises(
                ValueError, match="Global rank 0 is not part of group <"
            ):
                dist.get_group_rank(group, 0)
            with pytest.raises(ValueError, match="Group rank 1 is not part of group <"):
                dist.get_global_rank(group, 1)

    run_ranks(2, body)


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


def test_the_groups_store_is_its_own():
    def body(rank):
        group = dist.new_group([0, 1])
        store = group.get_group_store()
        store.set(f"{rank}", "here")
        store.wait(["0", "1"])
        world_store = dist.group.WORLD.get_group_store()
        assert not world_store.check(["0"])
        return isinstance(store, dist.PrefixStore)

    assert run_ranks(2, body) == [True, True]


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("aborter", [0, 1])
def test_abort_ends_those_who_wait(aborter, is_open):
    told = threading.Barrier(2)

    def body(rank):
        if is_open:
            dist.barrier()
        if rank == aborter:
            dist.group.WORLD.abort("enough")
        with pytest.raises(dist.DistBackendError, match="enough") as caught:
            dist.barrier()
        # Who leaves earlier is known to have left, not to have aborted.
        told.wait(LIMIT)
        assert caught.type is dist.DistBackendError

    run_ranks(2, body)


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


def test_destroying_waits_no_longer_than_the_groups_timeout():
    def body(rank):
        if rank == 0:
            group = dist.new_group(timeout=timedelta(seconds=0.2))
            long = timedelta(minutes=30)
            work = dist.barrier(group=group, async_op=True, timeout=long)
            start = time.monotonic()
            dist.destroy_process_group(group)
            assert time.monotonic() - start < patient(5, start)
            with pytest.raises(dist.DistBackendError):
                work.wait()
        dist.barrier()

    run_ranks(2, body)


def test_groups_share_the_time_to_leave():
    def body(rank):
        if rank == 0:
            groups = [dist.new_group() for _ in range(10)]
            works = [dist.barrier(group=group, async_op=True) for group in groups]
            start = time.monotonic()
            current().destroy(timedelta(seconds=0.5))
            assert 0.4 < time.monotonic() - start < patient(4, start)
            assert all(work.exception() for work in works)

    run_ranks(2, body)


def test_a_group_that_fails_to_leave_keeps_no_other_from_it():
    def body(rank):
        groups = [dist.new_group() for _ in range(3)]

        def fail(grace):
            raise dist.DistBackendError("lost")

        groups[1].shutdown = fail
        with pytest.raises(dist.DistBackendError, match="lost"):
            dist.destroy_process_group()
        for group in (groups[0], groups[2]):
            with pytest.raises(ValueError, match="destroyed"):
                group.get_group_store()

    run_ranks(1, body)


def test_who_was_started_by_a_launcher(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not dist.is_torchelastic_launched()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert dist.is_torchelastic_launched()


def test_a_negative_timeout_is_refused():
    with use(World()), pytest.raises(ValueError, match=r"not be negative, got -1\.0 s"):
        init(timeout=timedelta(seconds=-1))


@pytest.mark.parametrize("is_world", [False, True])
def test_who_holds_a_group_is_called_before_its_end(is_world):
    def body(rank):
        world, seen = current(), []
        group = dist.group.WORLD if is_world else dist.new_group()

        def last_use():
            array = np.ones(1)
            group.allreduce(array).wait()
            seen.append(array[0])
            raise OSError("as what holds the group may")

        world.before_end_of(group, lambda: seen.append("of another"))
        world.before_end_of(group, last_use)
        with pytest.raises(OSError, match="as what holds"):
            dist.destroy_process_group(group)
        with pytest.raises(dist.DistBackendError):
            group.allreduce(np.ones(1))
        if not is_world:
            dist.destroy_process_group()
        return seen

    assert run_ranks(2, body) == [[2], [2]]


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


def test_an_array_is_no_group():
    def body(rank):
        with pytest.raises(ValueError, match=r"Group \[1. 1.\] is not registered"):
            dist.barrier(np.ones(2))

    run_ranks(2, body)


@pytest.mark.parametrize(
    ("device", "kind"),
    [(1.5, TypeError), ([0], TypeError), ("cpu", ValueError), ("cuda", ValueError)],
)
def test_a_device_id_is_an_accelerator_with_an_index(device, kind):
    text = f"init_process_group: device_id must be .*, got {re.escape(repr(device))}"
    with pytest.raises(kind, match=text):
        init(device_id=device)
    assert not dist.is_initialized()


def test_an_empty_backend_is_unknown():
    with pytest.raises(AssertionError, match="Unknown backend type"):
        init(backend="")
