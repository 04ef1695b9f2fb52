"""torch tensors within objects: what they share and are, and that nothing is copied."""

import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from allhands.ops.serialization import pack, room_for, unpack  # noqa: E402

LARGE = 100_000  # elements: their memory goes beside the pickle


def trip(obj, weights_only=False):
    """`obj` as it arrives, and how many buffers went beside its pickle."""
    packed = pack(obj)
    [arrived] = room_for([packed.numbers()])
    for source, target in zip(packed.sections(), arrived.sections(), strict=True):
        target[:] = source
    return unpack(arrived, weights_only), len(packed.buffers)


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool]
DTYPES += [torch.complex64, torch.uint16, torch.float8_e4m3fn]


@pytest.mark.parametrize("count", [0, 3, LARGE])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_size_and_dtype(dtype, count):
    tensor = torch.arange(count).to(dtype)
    result, num_buffers = trip(tensor)
    assert result.tolist() == tensor.tolist()  # torch compares no 8-bit floats
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


class Holder:
    """Another one."""

    def __init__(self, held):
        self.held = held


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
    packed = pack(torch.ones(3).untyped_storage())
    program = """
import sys
import numpy as np
from allhands.ops.serialization import Serialized, unpack

assert "torch" not in sys.modules
data = np.frombuffer(sys.stdin.buffer.read(), np.uint8)
assert unpack(Serialized([data], [])).nbytes() == 12
"""
    [piece] = packed.sections()
    subprocess.run([sys.executable, "-c", program], input=piece.tobytes(), check=True)


DATA = [
    torch.arange(3.0),
    torch.arange(float(LARGE)).to(torch.bfloat16),
    torch.ones(300, 400).T[::2],
    torch.nn.Parameter(torch.ones(3)),
    torch.ones(3, requires_grad=True),
    torch.eye(5).to_sparse(),
    torch.empty(3, device="meta"),
    torch.float32,
    torch.device("cpu"),
    torch.Size([2, 3]),
    torch.nn.Linear(400, 300).state_dict(),
    {"step": 1, "state": [(torch.ones(2), None)]},
]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("number", range(len(DATA)))
def test_weights_only_lets_data_through(number):
    obj = DATA[number]
    result = trip(obj, weights_only=True)[0]
    expected = trip(obj)[0]
    assert type(result) is type(expected)
    assert str(result) == str(expected)


def test_weights_only_shares_what_was_shared():
    tensor = torch.arange(float(LARGE))
    (one, other), num_buffers = trip([tensor, tensor[10:]], weights_only=True)
    one[10] = -1
    assert other[0] == -1
    assert num_buffers == 1


def test_weights_only_refuses_classes_until_the_program_allows_them():
    model, named = torch.nn.Linear(2, 2), torch.ones(3).as_subclass(Named)
    for obj, name in (
        (model, r"torch\.nn\.modules\.linear\.Linear"),
        (named, rf"{Named.__module__}\.Named"),
        (torch.load, r"torch\.serialization\.load"),
        (torch.hub.load, r"torch\.hub\.load"),
    ):
        with pytest.raises(pickle.UnpicklingError, match=f"global: {name} is not all"):
            trip(obj, weights_only=True)
    with torch.serialization.safe_globals([Named]):
        assert type(trip(named, weights_only=True)[0]) is Named
    with torch.serialization.safe_globals([Holder]):
        assert trip(Holder([1]), weights_only=True)[0].held == [1]
    with pytest.raises(pickle.UnpicklingError, match="Holder is not allowed"):
        trip(Holder([1]), weights_only=True)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_weights_only_checks_the_indices_of_sparse_tensors():
    compressed = torch.eye(5).to_sparse_csr()
    result, _ = trip(compressed, weights_only=True)
    assert result.layout is torch.sparse_csr
    assert torch.equal(result.to_dense(), torch.eye(5))
    indices = torch.tensor([[0, 99]])
    wrong = torch.sparse_coo_tensor(
        indices, torch.ones(2), (3,), check_invariants=False
    )
    with pytest.raises(RuntimeError, match="inconsistent with indices"):
        trip(wrong, weights_only=True)
    rows, columns = torch.tensor([0, 1, 2]), torch.tensor([0, 99])
    wrong = torch.sparse_csr_tensor(
        rows, columns, torch.ones(2), (2, 3), check_invariants=False
    )
    with pytest.raises(RuntimeError, match="col_indices"):
        trip(wrong, weights_only=True)
