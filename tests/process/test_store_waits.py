"""Waits of a program in a store while a rank dies; each rank is a process."""

import signal

import pytest

import allhands as dist
from harness.pace import patient
from harness.ranks import Processes

REQUESTS = {
    "get": "store.get('key')",
    "wait": "store.wait(['key'])",
    "wait with a limit": "store.wait(['key'], timedelta(seconds=100))",
    "multi_get": "store.multi_get(['key', 'other'])",
    "queue_pop": "store.queue_pop('key')",
    "barrier": "store.barrier('key', size)",
    "get by prefix": "dist.PrefixStore('a', store).get('key')",
}
STORES = {
    "a TCPStore": "dist.TCPStore('127.0.0.1', {port})",
    "the FileStore of the world": "dist.distributed_c10d._get_default_store()",
}


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_killed_rank_is_named_within_a_second(request_, store):
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    source = f"""
        store = {store.format(port=server.port)}
        dist.barrier()
        if rank == 1:
            give(time.monotonic())
            os.kill(os.getpid(), {int(signal.SIGKILL)})
        try:
            {request_}
        except dist.RankFailedError as error:
            give((time.monotonic(), error.ranks, str(error)))
    """
    with Processes(3, source) as job:
        first, killed, last = job.join(codes=[0, -signal.SIGKILL, 0])
    for noticed, ranks, text in (first, last):
        assert noticed - killed < patient(1, killed)
        assert ranks == [1]
        assert "of a store: rank 1 died while rank" in text


def test_a_death_is_told_once_and_not_after_an_operation_has_told_it():
    source = f"""
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        if rank == 2:
            os.kill(os.getpid(), {int(signal.SIGKILL)})
        try:
            store.get("never") if rank == 0 else dist.barrier()
        except dist.RankFailedError as error:
            told = error.ranks
        store.set(f"told/{{rank}}", str(told))
        store.get(f"told/{{1 - rank}}")  # this is no news
        try:
            store.wait(["never"], timedelta(seconds=2))
        except dist.DistStoreError:
            give(told)
    """
    with Processes(3, source) as job:
        assert job.join(codes=[0, 0, -signal.SIGKILL]) == [[2], [2], None]


def test_each_thread_that_waits_is_told():
    source = f"""
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), {int(signal.SIGKILL)})
        found = []
        def wait():
            try:
                store.get("never")
            except dist.RankFailedError as error:
                found.append(error.ranks)
        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        give(found)
    """
    with Processes(2, source) as job:
        assert job.join(codes=[0, -signal.SIGKILL])[0] == [[1]] * 3


@pytest.mark.parametrize("is_used", [True, False])
def test_a_rank_that_left_in_peace_is_not_dead(is_used):
    source = f"""
        import select

        store = dist.distributed_c10d._get_default_store()
        if {is_used}:
            dist.barrier()
        if rank == 1:
            store.set("pid", str(os.getpid()))
        else:
            other = os.pidfd_open(int(store.get("pid")))
            select.select([other], [], [])  # until it has ended
            try:
                store.wait(["never"], timedelta(seconds=1.5))
            except dist.DistStoreError as error:
                give(str(error))
    """
    with Processes(2, source) as job:
        told, _ = job.join()
    assert "wait timeout after 1500ms" in told
