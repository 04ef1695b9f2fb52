"""Shared arrays as torch tensors."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("shape", [(3, 4), 5, (), (0, 2), torch.Size([2])])
def test_a_torch_dtype_gives_a_tensor(shape, dtype):
    def body(rank):
        tensor = dist.empty_shared(shape, dtype)
        assert tensor.shape == torch.empty(shape).shape
        assert tensor.dtype == dtype
        assert tensor.is_contiguous()
        assert not tensor.any()

    run_ranks(2, body)


def test_collectives_and_peers():
    def body(rank):
        tensor = dist.empty_shared((2, 40_000), torch.bfloat16)
        tensor.fill_(rank + 1)
        dist.all_reduce(tensor)
        assert (tensor == 3).all()
        dist.all_reduce(tensor[1])
        assert (tensor[1] == 6).all()
        tensor[0] = rank
        dist.barrier()
        theirs = dist.peer_array(tensor[0], 1 - rank)
        assert theirs.dtype == torch.bfloat16
        assert (theirs == 1 - rank).all()
        dist.barrier()

    run_ranks(2, body)


def test_one_rank_may_have_a_tensor_and_one_an_array():
    def body(rank):
        array = dist.empty_shared(5000, torch.float32 if rank else np.float32)
        array[:] = rank + 1
        dist.all_reduce(array)
        assert (array == 3).all()

    run_ranks(2, body)


def test_a_tensor_keeps_its_memory_alone():
    def body(rank):
        tensor = dist.empty_shared(5000, torch.float32)
        rows = tensor.view(50, 100)[3:]
        del tensor
        rows.fill_(rank)
        dist.all_reduce(rows)
        assert (rows == 1).all()

    run_ranks(2, body)
