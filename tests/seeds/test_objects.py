"""The reference's object collectives, on three ranks and between two."""

import pytest

import allhands as dist
from harness.ranks import run_ranks

OBJECTS = ["foo", 12, {1: 2}]


def test_broadcast_object_list():
    def body(rank):
        objects = list(OBJECTS) if rank == 0 else [None, None, None]
        dist.broadcast_object_list(objects, src=0)
        return objects

    assert run_ranks(3, body) == [OBJECTS] * 3


def test_broadcast_object_list_with_a_device():
    torch = pytest.importorskip("torch")

    def body(rank):
        objects = list(OBJECTS) if rank == 0 else [None, None, None]
        dist.broadcast_object_list(objects, src=0, device=torch.device("cpu"))
        return objects

    assert run_ranks(3, body) == [OBJECTS] * 3


def test_all_gather_object():
    def body(rank):
        output = [None for _ in OBJECTS]
        dist.all_gather_object(output, OBJECTS[dist.get_rank()])
        return output

    assert run_ranks(3, body) == [OBJECTS] * 3


def test_gather_object():
    def body(rank):
        output = [None for _ in OBJECTS]
        target = output if dist.get_rank() == 0 else None
        dist.gather_object(OBJECTS[dist.get_rank()], target, dst=0)
        return output

    untouched = [None] * 3
    assert run_ranks(3, body) == [OBJECTS, untouched, untouched]


def test_scatter_object_list():
    def body(rank):
        objects = OBJECTS if dist.get_rank() == 0 else [None, None, None]
        output_list = [None]
        dist.scatter_object_list(output_list, objects, src=0)
        return output_list

    assert run_ranks(3, body) == [["foo"], [12], [{1: 2}]]


def test_send_and_recv_object_list():
    def body(rank):
        if dist.get_rank() == 0:
            objects = list(OBJECTS)
            dist.send_object_list(objects, dst=1, device="cpu")
        else:
            objects = [None, None, None]
            assert dist.recv_object_list(objects, src=0, device="cpu") == 0
        return objects

    assert run_ranks(2, body) == [OBJECTS] * 2
