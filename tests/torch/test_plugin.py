"""How torch comes to know the backend, and what that must not break."""

import subprocess
import sys

import pytest

import allhands_torch
from harness.launcher import environment, launch, program

torch = pytest.importorskip("torch")


def run(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )


def test_torch_knows_the_backend_and_has_loaded_nothing_else():
    done = run(
        """if True:
        import sys
        import torch
        print(torch.distributed.Backend.ALLHANDS)
        print([name for name in sys.modules if name.partition(".")[0] == "allhands"])
        """
    )
    assert done.stdout.split() == ["allhands", "[]"]


def test_what_goes_wrong_does_not_reach_torch(monkeypatch, caplog):
    def refuse(*arguments, **options):
        raise RuntimeError("another torch")

    monkeypatch.setattr(torch.distributed.Backend, "register_backend", refuse)
    allhands_torch.register()
    [record] = caplog.records
    assert "goes on without allhands" in record.message
    assert "another torch" in record.exc_text


def test_without_torch_distributed_there_is_nothing_to_do(monkeypatch, caplog):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed.Backend, "register_backend")
    allhands_torch.register()
    assert not caplog.records


def test_arguments_of_gloo_are_taken_and_refused_alike():
    done = run(
        """if True:
        import torch
        import torch.distributed as dist

        def tell(call, *arguments, **options):
            try:
                call(*arguments, **options)
            except (RuntimeError, TypeError, ValueError) as error:
                print(type(error).__name__, str(error).partition(",")[0])

        init, store = dist.init_process_group, dist.HashStore()
        tell(init, "allhands", store=store, rank=1, world_size=1)
        init("allhands", store=store, rank=0, world_size=1)
        for tag in (-1, 2**31):
            tell(dist.isend, torch.ones(1), 0, tag=tag)
            tell(dist.irecv, torch.ones(1), 0, tag=tag)
            tell(dist.recv, torch.ones(1), tag=tag)
        work = dist.all_reduce(torch.ones(1), async_op=True)
        print(work.wait(30.0))
        whole, x = dist.group.WORLD, torch.full((1,), 3.0)
        whole.allreduce(tensor=x, op=dist.ReduceOp.MAX).wait()
        outputs, output = [torch.zeros(1)], torch.zeros(1)
        whole.allgather(output_tensors=outputs, input_tensor=x).wait()
        whole.reduce_scatter(output=output, input=[x], op=dist.ReduceOp.SUM).wait()
        print(outputs[0].item(), output.item())
        dist.destroy_process_group()
        """
    )
    calls = "send", "recv", "recv_anysource"  # of torch's ProcessGroup
    assert done.stdout.splitlines() == [
        "ValueError rank must be in [0",
        *[f"RuntimeError {op}: Tag must be nonnegative: it is in [0" for op in calls],
        *[f"TypeError {op}: tag must be an int in [0" for op in calls],
        "True",
        "3.0 3.0",
    ]


def test_options_of_others_are_refused():
    done = run(
        """if True:
        import torch.distributed as dist
        class Options: pass
        try:
            dist.init_process_group(
                "allhands", store=dist.HashStore(), rank=0, world_size=1,
                pg_options=Options())
        except TypeError as error:
            print(error)
        import allhands
        dist.init_process_group(
            "allhands", store=dist.HashStore(), rank=0, world_size=1,
            pg_options=allhands.NativeOptions(reduce_order="rank"))
        groups = [dist.group.WORLD, dist.new_group([0]),
                  dist.group.WORLD.split_group([0])]
        print(*(group.reduce_order for group in groups))
        """
    )
    assert "backend 'allhands' takes NativeOptions as pg_options, got" in done.stdout
    assert "rank rank rank" in done.stdout


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_program_that_says_gloo_gets_the_engine(tmp_path, how):
    text = """
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        pair = dist.new_group([0, 1])
        x = torch.ones(2)
        for group in (dist.group.WORLD, pair):
            dist.all_reduce(x, group=group)
        dist.monitored_barrier()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
        model(torch.full((1, 1), 2.0 * dist.get_rank())).sum().backward()
        assert model.module.weight.grad.item() == 1
        kinds = [type(group).__name__ for group in (dist.group.WORLD, pair)]
        print(kinds, dist.get_backend(), dist.get_backend(pair), x.tolist())
        dist.destroy_process_group()
    """
    options = ["--replace-gloo"] if how == "option" else []
    env = environment(**({} if options else {"ALLHANDS_REPLACE_GLOO": "1"}))
    done = launch(*options, "--nproc-per-node=2", program(tmp_path, text), env=env)
    assert done.returncode == 0, done.stderr
    seen = "['GlooProcessGroup', 'GlooProcessGroup'] gloo gloo [4.0, 4.0]"
    assert sorted(done.stdout.splitlines()) == [
        f"[rank{rank}] {seen}" for rank in (0, 1)
    ]


def test_gloo_is_left_alone_where_there_is_a_gpu(monkeypatch, caplog):
    before = torch.distributed.distributed_c10d.ProcessGroupGloo
    monkeypatch.setenv("ALLHANDS_REPLACE_GLOO", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    allhands_torch.register()
    [record] = caplog.records
    assert "torch finds a GPU here" in record.exc_text
    assert torch.distributed.distributed_c10d.ProcessGroupGloo is before
