"""Shared arrays between processes: what they cost, and what a dead rank leaves."""

import re
import signal

import pytest

from harness.ranks import Processes

REPORT = """
    def status(field):
        for line in open("/proc/self/status"):
            if line.startswith(field):
                return int(line.split()[1])

    def mapped():
        return open("/proc/self/maps").read().count("memfd:allhands-")
"""


def test_hundreds_of_arrays_leave_nothing():
    program = """
    def cycle():
        array = dist.empty_shared(50_000, np.float32)
        array[:] = rank + 1
        dist.all_reduce(array)
        assert (array == 3).all()

    for _ in range(20):
        cycle()
    before = len(os.listdir("/proc/self/fd")), status("Threads"), mapped()
    memory = resident()
    for _ in range(300):
        cycle()
    after = len(os.listdir("/proc/self/fd")), status("Threads"), mapped()
    give((before == after, before, after, resident() - memory))
    """
    with Processes(2, REPORT + program) as processes:
        for is_same, before, after, growth in processes.join():
            assert is_same, (before, after)
            assert growth < 2 << 20  # bytes; the arrays had 60 MB


def test_a_dead_rank_leaves_the_others_their_arrays():
    program = """
    array = dist.empty_shared(100_000, np.float32)
    array[:] = rank
    dist.all_reduce(array)
    try:
        with dist.debug.faults("rank=1,do=kill"):
            dist.all_reduce(array)
    except dist.RankFailedError as error:
        theirs = dist.peer_array(array, 1)
        say(f"{error.ranks} {theirs[0] >= 0} {array[0] >= 0}")
    del array, theirs
    dist.destroy_process_group()
    give(mapped())
    """
    with Processes(3, REPORT + program) as processes:
        for rank in (0, 2):
            assert processes.read(rank) == "[1] True True"
        assert processes.join(codes=[0, -signal.SIGKILL, 0]) == [0, None, 0]


def test_a_rank_that_dies_while_others_make_an_array_is_named():
    program = """
    dist.barrier()
    try:
        with dist.debug.faults("rank=1,op=empty_shared,do=kill"):
            dist.empty_shared(100, np.float32)
    except dist.RankFailedError as error:
        give(error.ranks)
    """
    with Processes(3, REPORT + program) as processes:
        assert processes.join(codes=[0, -signal.SIGKILL, 0]) == [[1], None, [1]]


def test_the_memory_has_no_name_that_could_stay_behind():
    program = """
    array = dist.empty_shared(100, np.float32)
    lines = open("/proc/self/maps").read().splitlines()
    mine = f"{array.ctypes.data:x}-"
    give([line.split(maxsplit=5)[5] for line in lines if line.startswith(mine)])
    """
    with Processes(1, program) as processes:
        [[name]] = processes.join()
    assert re.fullmatch(r"/memfd:allhands-[0-9a-f]{32} \(deleted\)", name)


@pytest.mark.parametrize(
    "call", ["dist.empty_shared(8, np.float32)", "dist.peer_array(there, 0)"]
)
def test_no_memory_is_an_error_wherever_it_is_missing(call):
    pytest.importorskip("_testcapi")
    source = f"""
        import _testcapi
        there = dist.empty_shared(8, np.float32)
        call = lambda: {call}
        call()
        num_failed, place, num_fine = 0, 0, 0
        while num_fine < 20:  # some that fail may be done without: go on for a while
            error, array = None, None
            # One, not all from there on: the interpreter itself needs the next ones.
            _testcapi.set_nomemory(place, place + 1)
            try:
                array = call()
            except MemoryError as raised:
                error = raised
            finally:
                _testcapi.remove_mem_hooks()
            num_failed += error is not None
            num_fine = 0 if error else num_fine + 1
            place += 1
        array[:] = 3
        give((num_failed > 0, array.sum()))
    """
    with Processes(1, source) as job:
        assert job.join() == [(True, 24)]
