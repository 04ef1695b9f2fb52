"""Ranks that die, are late, or are interrupted; each rank is a process."""

import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from harness.ctrl_c import check_ctrl_c_ends_rank_0
from harness.pace import patient
from harness.ranks import LIMIT, Processes

OPERATIONS = {
    "all_reduce of 8 B": "dist.all_reduce(np.zeros(1))",
    "all_reduce of 8 MB": "dist.all_reduce(np.zeros(1 << 20))",
    "broadcast": "dist.broadcast(np.zeros(100_000), 0)",
    "all_gather": "dist.all_gather([np.zeros(9) for _ in range(size)], np.zeros(9))",
    "barrier": "dist.barrier()",
    "async": "dist.all_reduce(np.zeros(9), async_op=True).wait()",
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_killed_rank_is_named_within_a_second(operation):
    source = f"""
        try:
            with dist.debug.faults("rank=1,nth=3,do=kill"):
                while True:
                    give(time.monotonic())  # at last the time at which rank 1 dies
                    {operation}
        except dist.RankFailedError as error:
            first = time.monotonic(), error.ranks, str(error)
        try:
            dist.barrier()
        except dist.DistBackendError:
            give(first)
    """
    with Processes(3, source) as job:
        first, killed, last = job.join(codes=[0, -signal.SIGKILL, 0])
    for noticed, ranks, text in (first, last):
        assert noticed - killed < patient(1, killed)
        assert ranks == [1]
        assert "rank 1" in text


# Of the ranks that have come to the operation; the last one has not.
def test_a_rank_killed_in_an_operation_is_named_while_another_is_late():
    source = """
        if rank == 2:
            stay()
        give(time.monotonic())
        try:
            with dist.debug.faults("rank=1,after=100ms,do=kill"):
                dist.all_reduce(np.zeros(1000))
        except dist.RankFailedError as error:
            give((time.monotonic(), error.ranks))
            say("told")
    """
    with Processes(4, source) as job:
        assert [job.read(rank) for rank in (0, 3)] == ["told"] * 2
        job.ranks[2].kill()
        results = job.join(codes=[0, -signal.SIGKILL, -signal.SIGKILL, 0])
    began = results[1]
    for noticed, ranks in (results[0], results[3]):
        assert 0.1 < noticed - began < 0.1 + patient(1, began)
        assert ranks == [1]


def test_a_rank_killed_amid_random_operations_hangs_nobody():
    source = """
        say("ready")
        generator = np.random.default_rng(7)
        try:
            while True:
                count = int(generator.choice([1, 100, 30_000, 300_000]))
                dist.all_reduce(np.ones(count))
        except dist.RankFailedError as error:
            give((time.monotonic(), error.ranks))
    """
    with Processes(4, source) as job:
        for rank in range(4):
            assert job.read(rank) == "ready"
        time.sleep(0.2)  # into the middle of it; any moment will do
        killed = time.monotonic()
        job.ranks[2].kill()
        results = job.join(codes=[0, 0, -signal.SIGKILL, 0])
    for rank in (0, 1, 3):
        noticed, ranks = results[rank]
        assert noticed - killed < patient(1, killed)
        assert ranks == [2]


def test_a_subgroup_without_the_dead_rank_goes_on():
    source = """
        group = dist.new_group([0, 2])
        dist.barrier()
        with dist.debug.faults("rank=1,op=barrier,do=kill"):
            try:
                dist.barrier()
            except dist.RankFailedError:
                pass
        array = np.array([rank])
        dist.all_reduce(array, group=group)
        give(int(array[0]))
    """
    with Processes(3, source) as job:
        assert job.join(codes=[0, -signal.SIGKILL, 0]) == [2, None, 2]


def test_a_stopped_rank_is_late_not_dead():
    source = """
        dist.barrier()
        try:
            with dist.debug.faults("rank=1,do=stop"):
                dist.all_reduce(np.zeros(5), timeout=timedelta(seconds=0.5))
        except dist.CollectiveTimeoutError as error:
            give((error.ranks, str(error)))
    """
    with Processes(2, source) as job:
        assert job.ranks[0].wait(LIMIT) == 0
        job.ranks[1].kill()
        ranks, text = job.join(codes=[0, -signal.SIGKILL])[0]
    assert ranks == [1]
    assert "rank 1 was last in barrier #1" in text


@pytest.mark.parametrize("killed", [False, True])
def test_who_has_no_file_descriptors_left_takes_only_the_dead_for_dead(killed):
    source = """
        import resource
        dist.barrier()
        if rank == 0:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
        say("ready")
        try:  # while rank 1 is late, rank 0 looks around
            with dist.debug.faults("rank=1,do=delay:500ms FAULT"):
                dist.barrier()
            outcome = []
        except dist.RankFailedError as error:
            outcome = error.ranks
        if rank == 0:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        give(outcome)
    """.replace(" FAULT", ";rank=1,do=kill" * killed)
    with Processes(2, source) as job:
        if killed:
            assert job.read(1) == "ready"
            # Nobody reaps it before the other one has looked.
            assert job.ranks[1].has_ended(LIMIT)
            assert job.read(0) == "ready"
            assert job.ranks[0].wait(LIMIT) == 0
            assert job.join(codes=[0, -signal.SIGKILL]) == [[1], None]
        else:
            assert job.join() == [[], []]


@pytest.mark.parametrize(
    "operation",
    [
        "dist.barrier()",
        "dist.all_reduce(np.zeros(100_000))",
        "dist.barrier(async_op=True).wait()",
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_ctrl_c_acts_within_half_a_second(operation, is_open):
    source = f"""
        if {is_open}:
            dist.barrier()
        try:
            say("ready")
            if rank == 1:
                stay()
            {operation}
        except KeyboardInterrupt:
            give(time.monotonic())
            raise  # so that it does not wait for what is queued
    """
    with Processes(2, source) as job:
        for rank in range(2):
            assert job.read(rank) == "ready"
        check_ctrl_c_ends_rank_0(job, -signal.SIGINT)


def test_ctrl_c_acts_in_init():
    """The rank is in a second world, whose other rank does not come."""
    source = """
        if rank == 1:
            stay()
        dist.destroy_process_group()
        store = FileStore(f"{folder}/another", size)
        try:
            say("ready")
            dist.init_process_group(store=store, rank=rank, world_size=size)
        except KeyboardInterrupt:
            give(time.monotonic())
    """
    with Processes(2, source) as job:
        assert job.read(0) == "ready"
        check_ctrl_c_ends_rank_0(job, 0)


def test_a_rank_that_leaves_early_is_named():
    source = """
        dist.barrier()
        if rank == 0:
            try:
                dist.all_reduce(np.zeros(3))
            except dist.RankFailedError as error:
                give((error.ranks, str(error)))
    """
    with Processes(2, source) as job:
        ranks, text = job.join()[0]
    assert ranks == [1]
    assert "left the group" in text


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(data, group=pair)",
        "dist.all_reduce(data, async_op=True, group=pair).wait()",
        "dist.recv(data, 1, group=pair)",
        "dist.recv(data, group=pair)",
    ],
)
def test_a_rank_that_leaves_a_group_that_nobody_has_used_is_named(call):
    source = f"""
        data = np.zeros(3)
        pair = dist.new_group()
        if rank == 1:
            dist.destroy_process_group(pair)
        dist.barrier()
        if rank == 0:
            try:
                {call}
            except dist.RankFailedError as error:
                give((error.ranks, str(error)))
        dist.barrier()  # rank 1 lives until then
    """
    with Processes(2, source) as job:
        ranks, text = job.join()[0]
    assert ranks == [1]
    assert "left the group" in text


@pytest.mark.parametrize(
    ("backend", "hosts"), [(None, "001"), ("cpu:native,cuda:fake", None)]
)
def test_the_exception_that_ended_a_rank_is_told(backend, hosts):
    source = f"""
        group = dist.new_group(backend={backend!r})
        dist.barrier(group=group)
        if rank == 1:
            raise ValueError("bad value 17\\nand more")
        try:
            dist.all_reduce(np.zeros(3), group=group)
        except dist.RankFailedError as error:
            give((error.ranks, str(error), error.__cause__))
    """
    with Processes(3, source, hosts=hosts) as job:
        results = job.join(codes=[0, 1, 0])
    for ranks, text, cause in (results[0], results[2]):
        assert ranks == [1]
        told = (cause.rank, cause.type_name, cause.message)
        assert told == (1, "ValueError", "bad value 17\nand more")
        assert cause.traceback.startswith("Traceback (most recent call last):\n")
        assert cause.traceback.endswith("\nValueError: bad value 17\nand more")
        assert re.search(r"rank 1 \(pid \d+\) ended by ValueError: bad value 17$", text)


def test_results_have_the_same_bits_in_processes():
    source = """
        generator = np.random.default_rng(rank)
        results = []
        for count in (1, 1000, 300_001):
            for dtype in ("float16", "float32", "complex128", "int16"):
                array = generator.uniform(-9, 9, count).astype(dtype)
                dist.all_reduce(array)
                parts = [np.empty_like(array) for _ in range(size)]
                dist.all_gather(parts, array)
                assert all(part.tobytes() == array.tobytes() for part in parts)
                results.append(array)
        give(results)
    """
    with Processes(3, source) as job:
        first, *others = job.join()
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(3)", 3), ("raise KeyboardInterrupt", 130)]
)
def test_a_rank_that_ends_while_it_pickles_tells_its_peers(end, code):
    source = f"""
        class Ends:
            def __reduce__(self):
                {end}

        dist.barrier()
        if rank == 0:
            dist.all_gather_object([0, 0], Ends())
        try:
            dist.all_gather_object([0, 0], 1)
        except dist.DistBackendError as error:
            give(str(error))
    """
    with Processes(2, source) as job:
        _, text = job.join(codes=[-2 if code == 130 else code, 0])
    assert "ranks [0] of group '0' could not pickle an object" in text


def test_a_forked_child_leaves_the_group_of_its_parent_alone():
    source = """
        dist.barrier()
        array = np.full(3, float(rank))
        work = dist.all_reduce(array, async_op=True) if rank == 0 else None
        group = dist.group.WORLD
        child = os.fork()
        if child == 0:
            said = []
            for call in [group.abort] + ([work.wait] if work else []):
                try:
                    call()
                except dist.DistBackendError as error:
                    said.append(str(error))
            said = [text for text in said if "forked child" in text]
            os._exit(0 if len(said) == 1 + (rank == 0) else 1)
        assert os.waitpid(child, 0)[1] == 0
        if rank == 0:
            work.wait()
        else:
            dist.all_reduce(array)
        give(array.tolist())
    """
    with Processes(2, source) as job:
        assert job.join() == [[1, 1, 1]] * 2


def test_ctrl_c_in_a_wait_leaves_the_operation_under_way():
    source = """
        dist.barrier()
        array = np.full(3, float(rank))
        if rank == 0:
            work = dist.all_reduce(array, async_op=True)
            def tell():
                until_it_waits(threading.main_thread())
                say("waits")
            threading.Thread(target=tell).start()
            try:
                work.wait()
            except KeyboardInterrupt:
                say("interrupted")
            work.wait()
        else:
            while not os.path.exists(f"{folder}/go"):
                time.sleep(0.01)
            dist.all_reduce(array)
        give(array.tolist())
    """
    with Processes(2, source) as job:
        assert job.read(0) == "waits"
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.read(0) == "interrupted"
        Path(job.folder, "go").touch()
        assert job.join() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("call", ["all_reduce(array, async_op=True)", "irecv(array)"])
def test_no_memory_for_a_thread_is_an_error_of_the_backend(call):
    source = f"""
        import resource
        array = np.zeros(3)
        dist.barrier()
        if rank == 0:
            used = int(open("/proc/self/statm").read().split()[0])
            used *= resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20),) * 2)
            try:
                dist.{call}
            except dist.DistBackendError as error:
                give(str(error))
        dist.barrier()
    """
    with Processes(2, source) as job:
        assert "emporarily unavailable" in job.join()[0]
