"""What goes wrong amid a step of training comes out where the program waits for it."""

import textwrap

import pytest

from harness.torch_jobs import TorchJob

pytest.importorskip("torch")

_MODELS = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        return self.used(x)
"""


def start(folder, size, source):
    return TorchJob(folder, size, _MODELS + textwrap.dedent(source))


def test_ddp_says_how_models_differ(tmp_path):
    source = """
    init("allhands")
    dist.barrier()  # afterwards a rank that leaves is missed
    DDP(nn.Linear(3 + rank, 2))
    """
    with start(tmp_path, 2, source) as job:
        zero, one = (process.communicate()[1] for process in job.ranks)
        assert [process.returncode for process in job.ranks] == [1, 1]
    assert "params[0] in this process with sizes [2, 4] appears not to match" in one
    assert "RankFailedError" in zero
    assert "params[0] in this process with sizes [2, 4]" in zero


@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_ddp_says_what_is_wrong(tmp_path, level):
    source = f"""
    dist.set_debug_level(dist.DebugLevel.{level})
    init("allhands")
    given = []
    def note(call):
        try:
            call()
        except RuntimeError as error:
            given.append(str(error))

    note(lambda: DDP(nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + rank)])))
    half = DDP(Half())
    for _ in range(2):
        note(lambda: half(torch.ones(2, 3)).sum().backward())
    note(lambda: dist.all_reduce(torch.ones(3 + rank)))
    def train(hook=None):
        whole = DDP(nn.Linear(3, 1))
        if hook is not None:
            whole.module.weight.register_hook(hook)
        whole(torch.ones(2, 3)).sum().backward()
        given.append(whole.module.weight.grad.tolist())

    # One rank's operation comes where the other's gradients do.
    disturb = (lambda _: dist.all_reduce(torch.ones(9))) if rank == 1 else None
    note(lambda: train(disturb))
    train()
    give(given)
    """
    with start(tmp_path, 2, source) as job:
        for rank, given in enumerate(job.join()):
            inconsistent, unused, different, disturbed, weights = given
            assert f"but Rank {rank} has {2 + 2 * rank} params" in inconsistent
            assert "parameters that were not used in producing loss" in unused
            named = "unused.weight" in unused and "unused.bias" in unused
            assert named == (level == "DETAIL")
            assert "called different things" in different
            assert "called different things" in disturbed
            assert "rank 1" in disturbed
            assert "count 9" in disturbed
            assert weights == [[2, 2, 2]]


def test_an_exception_amid_a_backward_pass_ends_its_rank_and_is_told_the_others(
    tmp_path,
):
    source = """
    init("allhands")
    module = DDP(nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)]),
                 bucket_cap_mb=0.00001)
    module(torch.ones(2, 4)).sum().backward()

    def fail(gradient):
        raise ValueError("the gradient is wrong")

    if rank == 1:
        module.module[1].weight.register_hook(fail)
    module(torch.ones(2, 4)).sum().backward()
    """
    with start(tmp_path, 3, source) as job:
        outputs = [process.communicate()[1] for process in job.ranks]
        assert [process.returncode for process in job.ranks] == [1, 1, 1]
    assert "ValueError: the gradient is wrong" in outputs[1]
    for rank in (0, 2):
        assert "RankFailedError" in outputs[rank]
        assert "rank 1 (pid " in outputs[rank]
        assert "ValueError: the gradient is wrong" in outputs[rank]


def test_the_world_can_be_left_after_an_exception_in_a_hook(tmp_path):
    source = """
    def run(number, kind=None, place="bucket"):
        def fail(*_):
            raise kind("stop")

        def hook(state, bucket):
            if kind is not None:
                fail()
            done = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
            return done.then(lambda done: done.value()[0])

        init("allhands", number)
        module = DDP(nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)]),
                     bucket_cap_mb=0.00001)
        if place == "bucket":
            module.register_comm_hook(None, hook)
        elif kind is not None:
            module.module[1].weight.register_hook(fail)
        try:
            module(torch.ones(2, 4)).sum().backward()
            return module.module[0].bias.grad.tolist()
        except BaseException as error:
            return [type(error).__name__, str(error)]
        finally:
            dist.destroy_process_group()

    given = []
    for kind in (KeyboardInterrupt, SystemExit, ValueError):
        for place in ("gradient", "bucket"):
            given.append(run(len(given), kind if rank == 0 else None, place))
    give([*given, run(len(given))])
    """
    kinds = ["KeyboardInterrupt", "SystemExit", "ValueError"]
    with start(tmp_path, 2, source) as job:
        [mine, others] = job.join()
    assert mine[:-1] == [[kind, "stop"] for kind in kinds for _ in range(2)]
    for _, text in others[:-1]:
        assert "rank 0 (pid " in text
        assert "left the group" in text
    assert mine[-1] == others[-1]
    assert len(mine[-1]) == 4
