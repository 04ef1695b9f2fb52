"""Ranks that die while the others still come together.

The ranks meet once, so that all run; then they make a second world, of one rank more.
"""

import signal
import time

import pytest

from harness.pace import patient
from harness.ranks import LIMIT, Processes

STORES = {
    "file": 'FileStore(f"{folder}/second", size + 1)',
    "tcp": 'dist.TCPStore("127.0.0.1", read_port(), is_master=False)',
}
HOST = """
        if rank == 0:
            server = dist.TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
            with open(f"{folder}/port", "w") as file:
                file.write(str(server.port))
        dist.barrier()
        dist.destroy_process_group()

        def read_port():
            with open(f"{folder}/port") as file:
                return int(file.read())
"""

# Says so once the ranks that `came` names are known to whoever comes.
TELL = """
        came = [0, 1, 2]
        def tell():
            store.wait([f"0//1/identity/{number}" for number in came])
            say("ready")
        threading.Thread(target=tell).start()
"""


@pytest.mark.parametrize("store", STORES)
def test_a_rank_that_came_and_was_killed_is_named_by_all_that_wait(store):
    source = f"""
{HOST}
        store = {STORES[store]}
{TELL}
        try:
            dist.init_process_group(store=store, rank=rank, world_size=size + 1)
        except (dist.RankFailedError, dist.DistStoreError) as error:
            give((time.monotonic(), type(error).__name__, str(error)))
    """
    with Processes(3, source) as job:
        for rank in range(3):
            assert job.read(rank) == "ready"
        killed = time.monotonic()
        job.ranks[1].kill()
        results = job.join(codes=[0, -signal.SIGKILL, 0])
    pid = job.ranks[1].pid
    kinds = "RankFailedError", None, "DistStoreError"
    for rank in (0, 2):
        noticed, kind, text = results[rank]
        assert noticed - killed < patient(1.5, killed)
        assert kind == kinds[rank]
        assert f"needs rank 1 (pid {pid}), which came and died" in text


@pytest.mark.parametrize("doomed", [1, 2])
def test_a_rank_that_only_found_the_store_and_was_killed_is_named(doomed):
    source = f"""
{HOST}
        url = f"tcp://127.0.0.1:{{read_port()}}"
        give(time.monotonic())
        try:
            with dist.debug.faults("rank={doomed},op=init_process_group,do=kill"):
                dist.init_process_group(init_method=url, rank=rank, world_size=size)
        except (dist.RankFailedError, dist.DistStoreError) as error:
            give((time.monotonic(), type(error).__name__, str(error)))
    """
    with Processes(3, source) as job:
        results = job.join(codes=[-9 if rank == doomed else 0 for rank in range(3)])
    pid, killed = job.ranks[doomed].pid, results[doomed]
    for rank in {0, 1, 2} - {doomed}:
        noticed, kind, text = results[rank]
        assert noticed - killed < patient(2, killed)
        assert kind == ("DistStoreError" if rank else "RankFailedError")
        assert f"needs rank {doomed} (pid {pid}), which came and died" in text


@pytest.mark.parametrize("stage", ["found the store", "came"])
def test_another_process_can_take_the_place_of_a_rank_that_died(stage):
    """Of rank 2; rank 3 and rank 4, which replaces it, come when the others failed."""
    source = f"""
{HOST}
        url = f"tcp://127.0.0.1:{{read_port()}}"
        client = dist.TCPStore("127.0.0.1", read_port(), is_master=False)

        def meet():
            number = 2 if rank == 4 else rank
            dist.init_process_group(init_method=url, rank=number, world_size=4)

        def tell_when_here(*ranks):
            client.wait([f"default_pg/0//1/identity/{{number}}" for number in ranks])
            say("ready")

        has_traces = False
        if rank == 2 and "{stage}" == "came":
            threading.Thread(target=tell_when_here, args=(0, 1, 2)).start()
        elif rank == 2:
            store, *_ = next(dist.rendezvous(url, rank, 4))
            tell_when_here(0, 1)
            stay()
        elif rank < 2:
            try:
                meet()
            except (dist.RankFailedError, dist.DistStoreError):
                has_traces = rank == 0 and client.check(["default_pg/died/2"])
                client.set(f"failed/{{rank}}", "")
        if rank != 2:
            client.wait(["failed/0", "failed/1"])
        meet()
        array = np.ones(1)
        dist.all_reduce(array)
        give((array[0], has_traces))
        dist.barrier()
        dist.destroy_process_group()
    """
    with Processes(5, source) as job:
        assert job.read(2) == "ready"
        job.ranks[2].kill()
        results = job.join(codes=[0, 0, -signal.SIGKILL, 0, 0])
    assert [result for result in results if result] == [(4, False)] * 4


def test_a_rank_that_dies_before_it_knows_the_others_does_not_hold_up_rank_0():
    source = """
        dist.barrier()
        dist.destroy_process_group()

        class Deadly(FileStore):
            def set(self, key, value):
                if key.endswith("read/2"):  # so the others would go on without it
                    os.kill(os.getpid(), signal.SIGKILL)
                super().set(key, value)

        store = (Deadly if rank == 2 else FileStore)(f"{folder}/second", size)
        try:
            dist.init_process_group(store=store, rank=rank, world_size=size)
        except dist.RankFailedError as error:
            give(error.ranks)
    """
    with Processes(3, source) as job:
        assert job.join(codes=[0, 0, -signal.SIGKILL]) == [[2], None, None]


def test_a_rank_that_gave_up_and_ended_is_not_called_dead():
    source = """
        dist.barrier()
        dist.destroy_process_group()
        limit = timedelta(seconds=4 if rank == 0 else 1)
        store = FileStore(f"{folder}/second", size + 1)
        try:
            dist.init_process_group(
                store=store, rank=rank, world_size=size + 1, timeout=limit)
        except dist.DistStoreError as error:
            give(str(error))
    """
    with Processes(2, source) as job:
        text, _ = job.join()
    assert "did not come: [2]; of the others, [1] gave up waiting earlier" in text


def test_a_world_can_be_made_after_a_rank_died_in_the_one_before():
    source = f"""
        dist.barrier()
        dist.destroy_process_group()
        store = FileStore(f"{{folder}}/second", size)
        try:
            if rank == 2:
                raise RuntimeError("never comes")
{TELL.replace("[0, 1, 2]", "[0, 1]").replace("        ", "            ")}
            dist.init_process_group(store=store, rank=rank, world_size=size)
        except RuntimeError:
            pass
        if rank == 1:
            stay()
        store = FileStore(f"{{folder}}/third", 2)
        dist.init_process_group(store=store, rank=min(rank, 1), world_size=2)
        array = np.ones(1)
        dist.all_reduce(array)
        give(array[0])
    """
    with Processes(3, source) as job:
        assert job.read(1) == "ready"
        job.ranks[1].kill()
        assert job.ranks[1].wait(LIMIT) == -signal.SIGKILL
        assert job.join(codes=[0, -signal.SIGKILL, 0]) == [2, None, 2]
