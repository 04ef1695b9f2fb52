"""Ranks of a torch program that die, differ or do not come: who is left is told."""

import signal

import pytest

from harness.pace import patient
from harness.torch_jobs import TorchJob

pytest.importorskip("torch")

_SAY = """
def say(error):
    give([type(error).__name__, str(error)])
"""


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(torch.ones(3))",
        "dist.all_gather_object([None] * size, rank)",
        "module(torch.ones(2, 4)).sum().backward()",
        "compressed(torch.ones(2, 4)).sum().backward()",
    ],
)
def test_a_rank_that_dies_is_named(tmp_path, call):
    source = f"""
    from allhands.debug import faults
    init("allhands")
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    compressed = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    hooks = dist.BuiltinCommHookType
    compressed._register_builtin_comm_hook(hooks.FP16_COMPRESS)
    dist.barrier()
    start = time.monotonic()
    try:
        with faults("rank=1,do=kill"):
            {call}
    except RuntimeError as error:
        give([type(error).__name__, str(error), start, time.monotonic()])
    """
    with TorchJob(tmp_path, 3, source) as job:
        for kind, text, start, end in job.join(dead=(1,)):
            assert kind == "RankFailedError"
            assert "rank 1 (pid " in text
            assert "died" in text
            assert end - start < patient(10, start)
        assert job.ranks[1].returncode == -signal.SIGKILL


def test_different_calls_are_told_on_every_rank(tmp_path):
    source = """
    init("allhands")
    given = []
    for asynchronous in (False, True):
        try:
            x = torch.ones(2 + rank)
            if asynchronous:
                dist.all_reduce(x, async_op=True).get_future().wait()
            else:
                dist.all_reduce(x)
        except RuntimeError as error:
            given.append("called different things" in str(error))
        x = torch.ones(2)
        dist.all_reduce(x)
        given.append(x.tolist())
    some = dist.new_group([1, 2])
    if rank > 0:
        for group in (some, some.split_group([1, 0])):
            try:
                group.allreduce([torch.ones(2 + rank)]).wait()
            except RuntimeError as error:
                given.append(str(error).partition("(")[2].partition(")")[0])
    give(given)
    """
    with TorchJob(tmp_path, 3, source) as job:
        of_all = [True, [3, 3], True, [3, 3]]
        of_some = ["ranks 1, 2 of the world", "ranks 2, 1 of the world"]
        assert job.join() == [of_all] + [of_all + of_some] * 2


def test_a_rank_that_does_not_come_is_named(tmp_path):
    source = """
    if rank == 0:
        try:
            init("allhands", timeout=1)
        except RuntimeError as error:
            give([dist.is_initialized(), str(error)])
    """
    with TorchJob(tmp_path, 2, source) as job:
        [(is_initialized, text)] = job.join(dead=(1,))
    assert not is_initialized
    assert "timed out: waited 1 s" in text
    assert "did not come: [1]" in text


def test_first_operations_need_those_alone_whom_they_concern(tmp_path):
    source = """
    init("allhands", timeout=60)
    x = torch.full((2,), float(rank))
    start = posted = time.monotonic()
    given = []
    if rank == 0:
        dist.send(x + 5, 1)
        try:
            dist.group.WORLD.monitored_barrier(timedelta(seconds=0.5))
        except RuntimeError as error:
            given = "missing [1, 2]" in str(error)
    if rank == 1:
        work = dist.irecv(x, 0)
        posted = time.monotonic()
        work.wait()
        given = x.tolist() == [5, 5]
    open(f"{folder}/done{rank}", "w").close()
    while not all(os.path.exists(f"{folder}/done{peer}") for peer in (0, 1)):
        time.sleep(0.01)
    give([given, start, posted, time.monotonic()])
    """
    with TorchJob(tmp_path, 3, source) as job:
        told = job.join()
    assert [given for given, *_ in told] == [True, True, []]
    for _, start, posted, end in told:
        assert posted - start < patient(20, start)
        assert end - start < patient(30, start)


def test_a_late_rank_is_named_by_the_limit_of_the_group(tmp_path):
    source = """
    init("allhands")
    dist.barrier()
    if rank == 0:
        dist.group.WORLD.set_timeout(timedelta(seconds=0.2))
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            give(str(error))
        open(f"{folder}/done", "w").close()
    else:
        while not os.path.exists(f"{folder}/done"):
            time.sleep(0.01)
    """
    with TorchJob(tmp_path, 2, source) as job:
        [text] = job.join(dead=(1,))
    assert "timed out" in text
    assert "missing [1]" in text
