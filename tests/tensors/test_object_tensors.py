"""torch tensors within objects: what they share and are, and that nothing is copied."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from allhands.ops.serialization import pack, room_for, unpack  # noqa: E402

LARGE = 100_000  # elements: their memory goes beside the pickle


def trip(obj):
    """`obj` as it arrives, and how many buffers went beside its pickle."""
    parcel = pack(obj)
    [arrived] = room_for([parcel.numbers()])
    for source, target in zip(parcel.sections(), arrived.sections(), strict=True):
        target[:] = source
    return unpack(arrived), len(parcel.buffers)


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool]
DTYPES += [torch.complex64]


@pytest.mark.parametrize("count", [0, 3, LARGE])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_size_and_dtype(dtype, count):
    tensor = torch.arange(count).to(dtype)
    result, num_buffers = trip(tensor)
    assert torch.equal(result, tensor)
    assert result.dtype == dtype
    assert num_buffers == (count == LARGE)
    if count:
        result[0] = 1  # it is its own


def test_the_memory_is_that_of_the_tensor():
    tensor = torch.ones(LARGE)
    [buffer] = pack(tensor).buffers
    buffer[:4] = 0
    assert tensor[0] == 0


def test_views_share_one_storage():
    tensor = torch.arange(float(LARGE))
    views = [tensor, tensor[10:], tensor[::2], tensor.view(100, -1).T]
    results, num_buffers = trip(views)
    assert num_buffers == 1
    assert all(map(torch.equal, results, views))
    assert [r.stride() for r in results] == [v.stride() for v in views]
    results[0][10] = -1
    assert results[1][0] == -1


def test_what_a_tensor_is_beside_its_numbers():
    plain = torch.ones(LARGE)
    parameter = torch.nn.Parameter(plain)
    wanting = plain.clone().requires_grad_()
    (result, frozen, grad), _ = trip(
        [parameter, torch.nn.Parameter(plain, False), wanting]
    )
    assert isinstance(result, torch.nn.Parameter)
    assert (result.requires_grad, frozen.requires_grad) == (True, False)
    assert grad.requires_grad
    assert type(grad) is torch.Tensor


def test_a_module_and_its_optimizer():
    model = torch.nn.Linear(400, 300)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (model2, optimizer2), num_buffers = trip([model, optimizer])
    assert num_buffers == 1  # the bias is small
    assert torch.equal(model2.weight, model.weight)
    assert optimizer2.param_groups[0]["params"][0] is model2.weight


class Named(torch.Tensor):
    """A class of a user's own."""


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_what_is_not_a_plain_tensor():
    sparse = torch.eye(500).to_sparse()
    named = torch.ones(LARGE).as_subclass(Named)
    named.label = "loss"
    results, _ = trip([sparse, named, torch.empty(3, device="meta")])
    assert torch.equal(results[0].to_dense(), torch.eye(500))
    assert type(results[1]) is Named
    assert results[1].label == "loss"
    assert results[2].device.type == "meta"


def test_the_receiver_need_not_have_imported_torch():
    parcel = pack(torch.ones(3).untyped_storage())
    program = """
import sys
import numpy as np
from allhands.ops.serialization import Parcel, unpack

assert "torch" not in sys.modules
data = np.frombuffer(sys.stdin.buffer.read(), np.uint8)
assert unpack(Parcel([data], [])).nbytes() == 12
"""
    [piece] = parcel.sections()
    subprocess.run([sys.executable, "-c", program], input=piece.tobytes(), check=True)
