"""Tensors on a GPU in groups of torch.distributed; ranks share one. Else it skips."""

import pytest

from harness import gpus
from harness.torch_jobs import TRAINING, TorchJob

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("gpu")

ON = """
torch.cuda.set_device(rank % torch.cuda.device_count())
torch.backends.cuda.matmul.allow_tf32 = False
"""
OPERATIONS = """
def numbers(device, length=1000):
    return torch.arange(length, dtype=torch.float32, device=device) % 7 + rank

def body(device):
    given = []
    def keep(*tensors):
        given.extend(tensor.tolist() for tensor in tensors)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
        x = numbers(device)
        dist.all_reduce(x, op)
        keep(x)
    x = numbers(device)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    keep(x, work.get_future().wait()[0])
    dist.broadcast(x, 1)
    keep(x)
    parts = [torch.zeros(1000, device=device) for _ in range(size)]
    dist.all_gather(parts, numbers(device))
    whole = torch.zeros(1000 * size, device=device)
    dist.all_gather_into_tensor(whole, numbers(device))
    keep(*parts, whole)
    part = torch.zeros(500, device=device)
    dist.reduce_scatter_tensor(part, numbers(device, 500 * size))
    keep(part)
    dist.all_to_all_single(whole, whole + rank)
    keep(whole)
    there = torch.zeros(1000, device=device)
    ops = [dist.P2POp(dist.isend, numbers(device), 1 - rank),
           dist.P2POp(dist.irecv, there, 1 - rank)]
    for each in dist.batch_isend_irecv(ops):
        each.wait()
    keep(there)
    strided = torch.zeros(20, 30, device=device)[:, 3]
    strided += rank + 1
    dist.all_reduce(strided)
    keep(strided)
    with dist._coalescing_manager(async_ops=True, device=torch.device(device)) as all:
        rows = [numbers(device, n) for n in (1, 5, 3)]
        for row in rows:
            dist.all_reduce(row)
    all.wait()
    keep(*rows)
    found = [None] * size
    dist.all_gather_object(found, {"at": numbers(device, 3)})
    keep(*(each["at"] for each in found))
    dist.barrier()
    return given

init("allhands")
give([body("cuda"), body("cpu")])
dist.destroy_process_group()
"""
TRAINED = """
def trained(wrap, device, dtype=torch.float32):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    module = wrap(module.to(device))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    losses = []
    for step in range(6):
        torch.manual_seed(10 * step + rank)
        given = torch.randn(16, 64).to(device)
        optimizer.zero_grad()
        loss = module(given).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
DDP_RUN = """
init("allhands")
give([trained(DDP, device) for device in ("cuda", "cpu")])
dist.destroy_process_group()
"""
FSDP_RUN = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

def sharded(device):
    mesh = init_device_mesh(device, (size,))
    def wrap(module):
        for layer in (module[0], module[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return module
    return wrap

init("allhands")
give([trained(sharded("cuda"), "cuda"), trained(sharded("cpu"), "cpu")])
dist.destroy_process_group()
"""
BESIDE_NCCL = """
init("cpu:allhands,cuda:nccl")
x, y = torch.ones(3), torch.ones(3, device="cuda")
dist.all_reduce(x)
dist.all_reduce(y)
found = [None]
dist.all_gather_object(found, "here")
give([trained(DDP, "cuda"), trained(DDP, "cpu")])
dist.destroy_process_group()
"""


@pytest.fixture
def gpu():
    gpus.count()


def both(tmp_path, size, source):
    """What each rank gave for the GPU and for the CPU."""
    with TorchJob(tmp_path, size, ON + source) as job:
        return job.join()


def test_operations_do_what_they_do_with_cpu_tensors(tmp_path):
    for on_gpu, on_cpu in both(tmp_path, 2, OPERATIONS):
        assert on_gpu == on_cpu


@pytest.mark.parametrize("run", [DDP_RUN, FSDP_RUN], ids=["ddp", "fsdp2"])
def test_training_goes_as_on_the_cpu(tmp_path, run):
    for on_gpu, on_cpu in both(tmp_path, 2, TRAINING + TRAINED + run):
        assert on_gpu == pytest.approx(on_cpu, rel=1e-5)
        assert on_gpu[-1] < on_gpu[0]


def test_beside_nccl(tmp_path):
    if torch.__version__ < "2.14":
        pytest.skip("before torch 2.14, allhands is alone in a group")
    [[on_gpu, on_cpu]] = both(tmp_path, 1, TRAINING + TRAINED + BESIDE_NCCL)
    assert on_gpu == pytest.approx(on_cpu, rel=1e-5)
