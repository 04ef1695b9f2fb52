"""torch CPU tensors through the same API; skipped where torch is not installed."""

import asyncio

import numpy as np
import pytest

import allhands as dist
from allhands.arrays import as_buffer, device_of
from harness.ranks import run_ranks

torch = pytest.importorskip("torch")

DTYPES = [
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128),
]
BYTES = [
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2),
    *(torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2),
]
LAYOUTS = {
    "contiguous": lambda t: t.reshape(2, 3).clone(),
    "transposed": lambda t: t.reshape(3, 2).clone().t(),
    "every other": lambda t: torch.stack([t, t]).t()[:, 0],
    "offset": lambda t: torch.cat([t, t])[3:9],
    "a column": lambda t: torch.stack([t, t, t], 1)[:, 1],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_dtype_and_layout(dtype, layout):
    def body(rank):
        # Ranks differ in layout; numbers are matched in row-major order.
        values = torch.arange(6).remainder(2).to(dtype)
        tensor = layout(values) if rank else values.clone()
        before = tensor.flatten().tolist()
        dist.all_reduce(tensor)
        result = tensor.flatten().tolist()
        parts = [torch.zeros(6, dtype=dtype) for _ in range(2)]
        dist.all_gather(parts, tensor)
        assert [part.tolist() for part in parts] == [parts[0].tolist()] * 2
        return before, result, parts[0].tolist()

    (before, result, gathered), (other, same, _) = run_ranks(2, body)
    expected = [
        bool(a or b) if dtype is torch.bool else a + b
        for a, b in zip(before, other, strict=True)
    ]
    assert result == same == gathered == expected


@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_floats_of_8_bits_and_less_are_moved_and_not_reduced(dtype):
    def body(rank):
        mine = torch.arange(1, 7, dtype=torch.uint8).add(rank << 4).view(dtype)
        wide = torch.zeros(6, 2, dtype=torch.uint8).view(dtype)[:, 0]  # strided
        parts = [torch.zeros(6, dtype=torch.uint8).view(dtype), wide]
        dist.all_gather(parts, mine)
        shares = torch.zeros(6, dtype=torch.uint8).view(dtype)
        dist.all_to_all_single(shares, mine)
        if rank:
            dist.send(mine, 0)
        else:
            dist.recv(mine, 1)
        name = str(dtype).removeprefix("torch.")
        with pytest.raises(TypeError, match=f"{name} can be moved but not reduced"):
            dist.all_reduce(mine)
        other = torch.uint8 if rank else dtype
        with pytest.raises(dist.CollectiveMismatchError, match=name):
            dist.broadcast(mine.view(other), 0)
        return [t.view(torch.uint8).tolist() for t in (*parts, shares, mine)]

    first, second = [1, 2, 3, 4, 5, 6], [17, 18, 19, 20, 21, 22]
    assert run_ranks(2, body) == [
        [first, second, first[:3] + second[:3], second],
        [first, second, first[3:] + second[3:], second],
    ]


def test_the_rest_of_a_strided_tensor_stays():
    def body(rank):
        base = torch.arange(6.0)
        dist.all_reduce(base[::2])
        return base.tolist()

    assert run_ranks(2, body) == [[0, 1, 4, 3, 8, 5]] * 2


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors(shape):
    def body(rank):
        tensor = torch.ones(shape)
        dist.all_reduce(tensor)
        return tensor.tolist()

    assert run_ranks(2, body) == [torch.full(shape, 2.0).tolist()] * 2


def test_leaves_that_require_grad_are_memory():
    def body(rank):
        parameter = torch.nn.Parameter(torch.full((3,), float(rank)))
        dist.broadcast(parameter, src=1)
        (parameter * 2).sum().backward()
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        return parameter.tolist(), parameter.grad.tolist()

    assert run_ranks(2, body) == [([1, 1, 1], [2, 2, 2])] * 2


def test_tensors_and_arrays_meet():
    def body(rank):
        array = torch.ones(3, dtype=torch.bfloat16) if rank else None
        if rank == 0:
            import ml_dtypes

            array = np.ones(3, ml_dtypes.bfloat16)
        dist.all_reduce(array)
        return [float(x) for x in array]

    assert run_ranks(2, body) == [[2, 2, 2]] * 2


def test_futures_are_torchs():
    def body(rank):
        tensor = torch.ones(2)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        assert isinstance(future, torch.futures.Future)
        halved = future.then(lambda f: f.value()[0] / 2).wait()
        failing = dist.all_reduce(torch.ones(2 + rank), async_op=True).get_future()
        with pytest.raises(dist.CollectiveMismatchError):
            failing.wait()
        return halved.tolist()

    assert run_ranks(2, body) == [[1, 1]] * 2


def test_a_work_on_tensors_can_be_awaited():
    def body(rank):
        async def main():
            tensor = torch.ones(2)
            await dist.all_reduce(tensor, async_op=True)
            return tensor.tolist()

        return asyncio.run(main())

    assert run_ranks(2, body) == [[2, 2]] * 2


def test_lazy_views_are_resolved_as_inputs_and_refused_as_outputs():
    def body(rank):
        lazy = torch.tensor([1 + 2j]).conj()
        parts = [torch.zeros(1, dtype=lazy.dtype) for _ in range(2)]
        dist.all_gather(parts, lazy)
        with pytest.raises(ValueError, match="lazily conjugated or negated"):
            dist.all_reduce(lazy)
        return [part.item() for part in parts], lazy.imag.is_neg()

    assert run_ranks(2, body) == [([1 - 2j, 1 - 2j], True)] * 2


def test_overlapping_outputs_are_refused():
    tensor = torch.ones(1).expand(3)
    assert as_buffer(tensor, writable=False).count == 3
    with pytest.raises(ValueError, match=r"shape \(3,\) and strides \(0,\).*clone"):
        as_buffer(tensor, writable=True)


def quantised():
    return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: torch.ones(2).to_sparse(),
            RuntimeError,
            "layout sparse_coo: only all_reduce takes",
        ),
        (lambda: torch.ones(2, device="meta"), RuntimeError, "device type meta"),
        (quantised, TypeError, r"dtype torch\.qint8"),
        (fake, RuntimeError, "has no memory"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            RuntimeError,
            "layout nested",
        ),
    ],
)
def test_tensors_without_plain_memory_are_refused(make, error, message):
    for writable in (False, True):
        with pytest.raises(error, match=message):
            as_buffer(make(), writable=writable)


def test_the_device_of_a_tensor():
    assert device_of(torch.ones(1)) == "cpu"
    assert device_of(torch.ones(1, device="meta")) == "meta"


def test_a_module_is_no_tensor():
    with pytest.raises(
        TypeError, match=r"torch.Tensor.*torch.nn.modules.linear.Linear"
    ):
        as_buffer(torch.nn.Linear(1, 1), writable=False)


def refuse(array, writable):
    raise AssertionError(f"{array.dtype} came to Python")


@pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="an older torch"
)
def test_the_core_reads_usual_tensors_itself(monkeypatch):
    as_buffer(torch.ones(1), writable=True)  # tells the core of torch
    monkeypatch.setattr("allhands.arrays._torch.as_buffer", refuse)

    def body(rank):
        for dtype in DTYPES:
            if not dtype.is_complex:  # those may be conjugated lazily
                dist.broadcast(torch.ones(2, dtype=dtype), src=0)
        for dtype in BYTES[:-1]:  # DLPack counts halves of bytes
            dist.broadcast(torch.ones(2, dtype=torch.uint8).view(dtype), src=0)
        dist.all_reduce(torch.nn.Parameter(torch.ones(2, 1, 3)))

    run_ranks(2, body)


def test_lazily_negated_inputs_are_resolved():
    def body(rank):
        lazy = torch.tensor([1 + 2j]).conj().imag  # contiguous, of one element
        assert lazy.is_neg()
        parts = [torch.zeros(1) for _ in range(2)]
        dist.all_gather(parts, lazy)
        dist.barrier()
        with pytest.raises(ValueError, match="lazily conjugated or negated"):
            dist.all_reduce(lazy)
        return [part.item() for part in parts]

    assert run_ranks(2, body) == [[-2, -2]] * 2


def test_persistent_requests():
    def body(rank):
        tensor = torch.zeros(3)
        parameter = torch.nn.Parameter(torch.full((2,), float(rank)))
        total = dist.all_reduce_init(tensor)
        share = dist.broadcast_init(parameter, src=1)
        share()
        for i in range(3):
            tensor.fill_(i)
            total()
        return tensor.tolist(), parameter.tolist()

    assert run_ranks(2, body) == [([4, 4, 4], [1, 1])] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.untyped_storage().resize_(0),
        lambda tensor: tensor.untyped_storage().resize_(80_000_000),
        lambda tensor: setattr(tensor, "data", torch.ones(3)),
    ],
    ids=["released", "grown", "replaced"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_a_persistent_request_for_memory_that_is_gone_is_refused(change, dtype):
    def body(rank):
        plain = torch.ones(100_000, dtype=dtype)
        turned = plain.view(1000, 100).clone().t()
        tensors = [plain, torch.nn.Parameter(plain.clone()), turned]
        requests = [dist.all_reduce_init(tensor) for tensor in tensors]
        for request, tensor in zip(requests, tensors, strict=True):
            request()
            with torch.no_grad():
                change(tensor)
            with pytest.raises(ValueError, match=r"all_reduce: .* make a new request"):
                request()

    run_ranks(2, body)


@pytest.mark.parametrize("held", [0, 64, 396])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_a_tensor_longer_than_its_storage_is_refused(held, dtype):
    def body(rank):
        whole, half = torch.ones(100, dtype=dtype), torch.ones(200, dtype=dtype)[100:]
        turned, leaf = whole.view(50, 2).t(), torch.nn.Parameter(whole)
        half.untyped_storage().resize_(100 * half.element_size() + held)
        whole.untyped_storage().resize_(held)
        for tensor in (whole, half, turned, leaf):
            needed = (tensor.storage_offset() + 100) * tensor.element_size()
            with pytest.raises(ValueError, match=rf"longer than its .* of {needed} by"):
                dist.all_reduce(tensor)
            with pytest.raises(ValueError, match="longer than its storage"):
                dist.all_gather([torch.ones(100, dtype=dtype)] * 2, tensor)
        whole.untyped_storage().resize_(100 * whole.element_size())
        dist.all_reduce(whole.fill_(1))
        return whole.tolist()

    assert run_ranks(2, body) == [[2] * 100] * 2


def test_a_tensor_that_its_smaller_storage_still_holds_is_taken():
    def body(rank):
        tensor = torch.arange(100.0)
        part = tensor[10:16]
        tensor.untyped_storage().resize_(64)
        dist.all_reduce(part)
        return part.tolist()

    assert run_ranks(2, body) == [[20, 22, 24, 26, 28, 30]] * 2
