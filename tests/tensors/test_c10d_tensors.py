"""Names with an underscore that make tensors, as in torch.distributed."""

from datetime import timedelta

import pytest
import torch

import allhands as dist
from allhands import distributed_c10d as c10d
from harness.ranks import run_ranks


def test_an_object_becomes_a_tensor_of_bytes_and_comes_back():
    content, size = c10d._object_to_tensor({"a": [1, "b"]}, torch.device("cpu"), None)
    assert (content.dtype, size.dtype) == (torch.uint8, torch.int64)
    assert content.numel() == size.item()
    padded = torch.cat([content, torch.zeros(9, dtype=torch.uint8)])
    assert c10d._tensor_to_object(padded, size, None) == {"a": [1, "b"]}


def test_tensors_of_a_group_are_on_the_cpu():
    def body(rank):
        return c10d._get_pg_default_device(), c10d._get_pg_default_device(
            dist.group.WORLD
        )

    assert run_ranks(1, body) == [(torch.device("cpu"),) * 2]


def test_a_group_gives_what_serves_a_device():
    def body(rank):
        world, limit = dist.group.WORLD, timedelta(seconds=7)
        served = world._get_backend(torch.device("cpu"))
        assert served == world._get_backend(torch.device("cpu"))
        assert (served.name(), served.rank(), served.size()) == ("native", rank, 2)
        tensor = torch.ones(2)
        served.allreduce([tensor]).wait()
        message = served.send if rank == 0 else served.recv
        message([tensor], 1 - rank, 3).wait()
        served._set_default_timeout(limit)
        options = served.options
        assert (options.backend, options._timeout) == ("native", limit)
        assert options.global_ranks_in_group == [0, 1]
        with pytest.raises(RuntimeError, match="device type meta"):
            world._get_backend(torch.device("meta"))
        return tensor.tolist()

    assert run_ranks(2, body) == [[2, 2]] * 2
