"""Groups whose ranks take themselves to be on several hosts, connected by TCP."""

import pytest

from harness import unlike_hosts
from harness.killed_amid import last_rank_killed_amid
from harness.ranks import Processes

PLACEMENTS = ["01", "0011", "0101", "000012", "21012"]
COUNTS = (1, 7, 5000, 300001)


@pytest.mark.parametrize("hosts", PLACEMENTS)
def test_collectives_have_the_values_of_one_host(hosts):
    source = f"""
        def values(rank, count):
            return ((np.arange(count) * 7 + rank * 13) % 32).astype(np.float32)

        def check(what, given, wanted):
            assert np.array_equal(given, wanted), (what, given, wanted)

        for count in {COUNTS}:
            mine = values(rank, count)
            all_ = [values(each, count) for each in range(size)]
            total = np.sum(all_, axis=0)
            given = mine.copy()
            dist.all_reduce(given)
            check("all_reduce", given, total)
            given = mine.copy()
            work = dist.all_reduce(given, dist.ReduceOp.MAX, async_op=True)
            work.wait()
            check("async all_reduce", given, np.max(all_, axis=0))
            root = size - 1
            given = mine.copy()
            dist.broadcast(given, root)
            check("broadcast", given, all_[root])
            given = mine.copy()
            dist.reduce(given, root)
            if rank == root:
                check("reduce", given, total)
            parts = [np.empty_like(mine) for _ in range(size)]
            dist.all_gather(parts, mine)
            check("all_gather", parts, all_)
            given = np.empty_like(mine)
            dist.reduce_scatter(given, [mine + each for each in range(size)])
            check("reduce_scatter", given, total + size * rank)
            parts = [np.empty_like(mine) for _ in range(size)]
            dist.all_to_all(parts, [mine + each for each in range(size)])
            check("all_to_all", parts, [each + rank for each in all_])
            dist.gather(mine, parts if rank == root else None, root)
            if rank == root:
                check("gather", parts, all_)
            given = np.empty_like(mine)
            dist.scatter(given, all_ if rank == root else None, root)
            check("scatter", given, mine)
            right, left = (rank + 1) % size, (rank - 1) % size
            request = dist.isend(mine, right, tag=count)
            given = np.empty_like(mine)
            dist.recv(given, left, tag=count)
            request.wait()
            check("recv", given, all_[left])
            dist.barrier()
        objects = [None] * size
        dist.all_gather_object(objects, {{"rank": rank}})
        assert objects == [{{"rank": each}} for each in range(size)]
        evens = dist.new_group(list(range(0, size, 2)))
        if rank % 2 == 0:
            given = np.array([rank])
            dist.all_reduce(given, group=evens)
            assert given[0] == sum(range(0, size, 2))
        one, two = np.full(3, rank), np.full((2, 2), rank)
        dist.all_reduce_coalesced([one, two])
        assert (one == sum(range(size))).all() and (two == sum(range(size))).all()
        rows = np.zeros((8, 6), np.float16)[::2, ::3]
        rows += rank
        dist.all_reduce(rows)
        assert (rows == sum(range(size))).all()
        dist.destroy_process_group()
        """
    size = len(hosts)
    with Processes(size, source, hosts=hosts) as processes:
        processes.join()


def test_who_calls_something_else_is_named_on_every_rank():
    source = """
        try:
            if rank == 3:
                dist.broadcast(np.ones(3), 0)
            else:
                dist.all_reduce(np.ones(3))
        except dist.CollectiveMismatchError as error:
            text = str(error)
        given = np.ones(3)
        dist.all_reduce(given)
        assert (given == size).all()
        give(text)
        """
    with Processes(4, source, hosts="0101") as processes:
        texts = processes.join()
    for text in texts:
        for part in ("broadcast(", "all_reduce(", "rank 3"):
            assert part in text


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_who_dies_is_named_on_every_rank(victim):
    source = f"""
        dist.barrier()
        try:
            with dist.debug.faults("rank={victim},do=kill"):
                while True:
                    dist.all_reduce(np.ones(1000))
        except dist.RankFailedError as error:
            give(error.ranks)
        """
    with Processes(4, source, hosts="0011") as processes:
        given = processes.join(codes=[-9 if rank == victim else 0 for rank in range(4)])
    assert given == [None if rank == victim else [victim] for rank in range(4)]


def test_errors_tell_of_the_operation_and_not_of_its_parts():
    _, told = last_rank_killed_amid("0011", "give(str(error))")
    for text in told:
        assert text.startswith("all_reduce(float32, count 16777216, SUM) #"), text
        assert not [part for part in ("reduce_scatter", "all_gather") if part in text]


def test_errors_say_which_ranks_of_the_world_a_group_has():
    source = """
        group = dist.new_group([1, 2, 3])
        if rank == 0:
            sys.exit()
        dist.barrier(group)
        try:
            with dist.debug.faults("rank=2,do=kill"):
                while True:
                    dist.all_reduce(np.ones(100_000), group=group)
        except dist.RankFailedError as error:
            give((error.ranks, str(error)))
        """
    with Processes(4, source, hosts="0010") as processes:
        _, *told = processes.join(codes=[0, 0, -9, 0])
    for ranks, text in (told[0], told[2]):
        assert ranks == [1]
        assert text.count("on group '1' (ranks 1-3 of the world)") == 1, text


@pytest.mark.parametrize("hosts", ["01", "0011"])
def test_who_leaves_a_group_that_it_never_used_is_named(hosts):
    source = """
        group = dist.new_group()
        if rank == size - 1:
            dist.destroy_process_group(group)
            dist.barrier()
            dist.destroy_process_group()
        else:
            try:
                dist.all_reduce(np.ones(3), group=group)
            except dist.RankFailedError as error:
                give(error.ranks)
            dist.barrier()
        """
    with Processes(len(hosts), source, hosts=hosts) as processes:
        given = processes.join()
    assert given == [[len(hosts) - 1]] * (len(hosts) - 1) + [None]


def test_arrays_are_shared_within_a_host():
    source = """
        try:
            dist.empty_shared(4, np.float32)
        except dist.DistBackendError as error:
            text = str(error)
        mine, _ = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])
        shared = dist.empty_shared(4, np.float32, group=mine)
        shared[:] = rank
        dist.all_reduce(shared, group=mine)
        give((text, float(shared[0])))
        """
    with Processes(4, source, hosts="0011") as processes:
        given = processes.join()
    assert [total for _, total in given] == [1, 1, 5, 5]
    for text, _ in given:
        assert "2 hosts, which share no memory" in text


def test_encrypted_connections_have_the_same_values(monkeypatch):
    monkeypatch.setenv("ALLHANDS_TLS", "1")
    monkeypatch.setenv("ALLHANDS_SECRET", "known to these ranks alone")
    source = """
        for count in (1, 5000, 300_001):
            given = np.full(count, rank, np.float32)
            dist.all_reduce(given)
            assert (given == sum(range(size))).all()
            if rank > 0:
                dist.send(given + rank, 0, tag=count)
            for source in range(1, size) if rank == 0 else ():
                came = np.empty_like(given)
                dist.recv(came, source, tag=count)
                assert (came == given + source).all()
        objects = [None] * size
        dist.all_gather_object(objects, "a" * 100_000 * (rank + 1))
        assert list(map(len, objects)) == [100_000 * (r + 1) for r in range(size)]
        dist.destroy_process_group()
        """
    with Processes(3, source, hosts="010") as processes:
        processes.join()


def test_ranks_that_do_not_all_encrypt_say_so(monkeypatch):
    monkeypatch.setenv("ALLHANDS_SECRET", "known to these ranks alone")
    monkeypatch.setenv("ALLHANDS_HEARTBEAT", "1")
    for text in unlike_hosts.errors("ALLHANDS_TLS", ["0", "1"]):
        assert "set ALLHANDS_TLS alike on every host" in text


def test_ranks_that_do_not_use_as_many_sockets_say_so(monkeypatch):
    monkeypatch.setenv("ALLHANDS_HEARTBEAT", "1")
    for text in unlike_hosts.errors("ALLHANDS_SOCKETS", ["1", "2"]):
        assert "set ALLHANDS_SOCKETS alike on every host" in text
