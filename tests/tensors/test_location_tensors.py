"""maxloc and minloc of torch tensors; ranks are threads."""

import pytest

import allhands as dist
from harness.ranks import run_ranks

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_tensors(dtype):
    values = torch.tensor([[1, 5, 2], [3, 5, 2], [3, 4, 9]]).to(dtype)

    def body(rank):
        pair = values[rank], torch.full((3,), rank)
        most = dist.all_reduce_object(pair, dist.maxloc)
        least = dist.all_reduce_object(pair, dist.minloc)
        assert most[0].dtype == dtype
        return [part.tolist() for part in (*most, *least)]

    expected = [[3, 5, 9], [1, 0, 2], [1, 4, 2], [0, 2, 0]]
    assert run_ranks(3, body) == [expected] * 3


def test_tensors_with_gradients():
    weights = torch.tensor([1.0, 5, 2], requires_grad=True)
    here = torch.zeros(3, dtype=torch.int64)
    other = weights.detach() * 3 - 4, here + 1
    for one in (weights, here), (weights * 1, here):
        values, where = dist.maxloc(one, other)
        assert not values.requires_grad
        assert (values.tolist(), where.tolist()) == ([1, 11, 2], [0, 1, 0])
        values, where = dist.minloc(other, one)
        assert (values.tolist(), where.tolist()) == ([-1, 5, 2], [1, 0, 0])
    assert weights.requires_grad

    def body(rank):
        pair = weights * (rank + 1), here + rank
        found = dist.all_reduce_object(pair, dist.maxloc)
        return [part.tolist() for part in found]

    assert run_ranks(2, body) == [[[2, 10, 4], [1, 1, 1]]] * 2


def test_a_tensor_and_an_array_are_refused():
    one, other = (torch.ones(2), torch.zeros(2)), (torch.ones(2).numpy(),) * 2
    with pytest.raises(TypeError, match=r"got torch\.float32 and float32"):
        dist.maxloc(one, other)
