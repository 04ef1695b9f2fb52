"""Libraries that bring their own launchers, loops and ideas of what a backend is."""

import json

import pytest

from harness.launcher import environment, launch, program

torch = pytest.importorskip("torch")


def test_accelerate_passes_its_own_test_on_the_engine(tmp_path):
    pytest.importorskip("accelerate")
    text = """
        import runpy
        from torch.distributed import distributed_c10d

        gloo = distributed_c10d.ProcessGroupGloo
        assert gloo.__module__ == "allhands.torch.gloo", gloo
        runpy.run_module(
            "accelerate.test_utils.scripts.test_script", run_name="__main__")
        print("passed")
    """
    done = launch(
        *("--multi_gpu", "--num_processes=2", "--num_machines=1"),
        *("--main_process_port=0", "--mixed_precision=no", "--dynamo_backend=no"),
        program(tmp_path, text),
        module="accelerate.commands.launch",
        env=environment(
            ALLHANDS_REPLACE_GLOO="1", ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1"
        ),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Num processes: 2") >= 2
    assert done.stdout.count("passed") == 2


_TRAIN = """
import json, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
inputs = torch.arange(32.0).reshape(8, 4) / 32
loader = DataLoader(TensorDataset(inputs), batch_size=BATCH)

def train(backward):
    for _ in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            backward((model(x) - 1).square().mean())
            optimizer.step()
    return [p.detach().flatten().tolist() for p in model.parameters()]
"""

_FABRIC = """
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy

fabric = Fabric(
    accelerator="cpu", devices=2,
    strategy=DDPStrategy(process_group_backend=sys.argv[1]))
fabric.launch()
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(loader)
weights = train(fabric.backward)
rank = fabric.global_rank
total = fabric.all_reduce(torch.tensor(rank + 1.0), reduce_op="sum").item()
every = fabric.all_gather(torch.tensor(rank)).tolist()
told = fabric.broadcast({"from": rank}, 1)
fabric.barrier()
"""

_ACCELERATE = """
from accelerate import Accelerator

dist.init_process_group(sys.argv[1])
accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
weights = train(accelerator.backward)
rank = accelerator.process_index
total = accelerator.reduce(torch.tensor(rank + 1.0)).item()
every = accelerator.gather(torch.tensor([rank])).tolist()
told = [{"from": rank}]
dist.broadcast_object_list(told, 1)
[told] = told
"""

_END = """
print(json.dumps([
    type(dist.group.WORLD).__name__, dist.get_backend(), weights, total, every, told]))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("library", ["lightning_fabric", "accelerate"])
@pytest.mark.parametrize("backend", ["gloo", "allhands"])
def test_a_loop_of_the_library_trains_as_one_process(tmp_path, library, backend):
    pytest.importorskip(library)
    middle = {"lightning_fabric": _FABRIC, "accelerate": _ACCELERATE}[library]
    path = program(tmp_path, _TRAIN.replace("BATCH", "2") + middle + _END)
    done = launch(
        *("--replace-gloo", "--nproc-per-node=2", path, backend),
        env=environment(OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    alone: dict[str, object] = {}
    exec(_TRAIN.replace("BATCH", "4") + "weights = train(torch.Tensor.backward)", alone)
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    given = [json.loads(line) for line in lines if line.startswith("[")]
    kind = {"gloo": "GlooProcessGroup", "allhands": "AllhandsProcessGroup"}[backend]
    assert len(given) == 2
    for name, said, weights, *rest in given:
        assert (name, said) == (kind, backend)
        for mine, others in zip(weights, alone["weights"], strict=True):
            assert mine == pytest.approx(others, abs=1e-6)
        assert rest == [3, [0, 1], {"from": 1}]
