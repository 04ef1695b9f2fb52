"""Errors about arguments say which operation was called."""

import re
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks

READ_ONLY = np.zeros(4, "f4")
READ_ONLY.flags.writeable = False
NO_ARRAYS = [None, 3, [1.0], np.zeros(3, object), np.zeros(3, ">f4")]
NOT_WRITABLE = [*NO_ARRAYS, READ_ONLY, np.broadcast_to(np.zeros(1), 4)]


def floats(count=4, dtype="f4"):
    return np.zeros(count, dtype)


def of_each(arrays, call):
    return [lambda array=array: call(array) for array in arrays]


CALLS = {
    "all_reduce": [
        *of_each(NOT_WRITABLE, dist.all_reduce),
        lambda: dist.all_reduce(floats(), op="sum"),
        lambda: dist.all_reduce(floats(), op=dist.ReduceOp.BAND),
        lambda: dist.all_reduce(floats(3, "i4"), op=dist.ReduceOp.PREMUL_SUM(0.5)),
        lambda: dist.all_reduce(floats(3, bool), op=dist.ReduceOp.AVG),
        lambda: dist.all_reduce(floats(), group="x"),
        lambda: dist.all_reduce(floats(), timeout=5),
        lambda: dist.all_reduce(floats(), timeout=timedelta(-1)),
    ],
    "reduce": [
        *of_each(NO_ARRAYS, lambda array: dist.reduce(array, 0)),
        lambda: dist.reduce(floats(), "0"),
        lambda: dist.reduce(floats(), 5),
        lambda: dist.reduce(floats()),
        lambda: dist.reduce(floats(), 0, group_dst=0),
    ],
    "broadcast": [
        *of_each(NO_ARRAYS, lambda array: dist.broadcast(array, 0)),
        lambda: dist.broadcast(floats(), -1),
    ],
    "all_gather": [
        *of_each(NO_ARRAYS, lambda array: dist.all_gather([floats()], array)),
        *of_each(NOT_WRITABLE, lambda array: dist.all_gather([array], floats())),
        lambda: dist.all_gather(None, floats()),
        lambda: dist.all_gather([floats(4, "f8")], floats()),
        lambda: dist.all_gather([floats(), floats()], floats()),
    ],
    "all_gather_single": [
        *of_each(NOT_WRITABLE, lambda array: dist.all_gather_single(array, floats())),
        lambda: dist.all_gather_single(floats(3), floats(4)),
    ],
    "gather": [lambda: dist.gather(floats(), None, dst=0)],
    "scatter": [lambda: dist.scatter(floats(), None, src=0)],
    "gatherv": [lambda: dist.gatherv(floats(), None, dst=9)],
    "reduce_scatter": [lambda: dist.reduce_scatter(floats(), [floats(3)])],
    "all_to_all": [lambda: dist.all_to_all([floats()], [floats(4, "i4")])],
    "all_to_all_single": [
        lambda: dist.all_to_all_single(floats(), floats(), [1], [4]),
        lambda: dist.all_to_all_single(floats(), floats(), [1, 3], [4]),
        lambda: dist.all_to_all_single(floats(), floats(), 5, [4]),
        lambda: dist.all_to_all_single(np.zeros(()), np.zeros(())),
    ],
    "scan": [lambda: dist.scan(floats(3), floats(4))],
    "send": [
        *of_each(NO_ARRAYS, lambda array: dist.send(array, 0)),
        lambda: dist.send(floats(), 9),
        lambda: dist.send(floats(), "0"),
        lambda: dist.send(floats(), 0, tag=-5),
        lambda: dist.send(floats(), 0, tag="x"),
    ],
    "recv": [
        *of_each(NOT_WRITABLE, lambda array: dist.recv(array, 0)),
        lambda: dist.recv(floats(), 9),
        lambda: dist.recv(floats(), 0, status=5),
    ],
    "isend": of_each(NO_ARRAYS, lambda array: dist.isend(array, 0)),
    "irecv": of_each(NOT_WRITABLE, lambda array: dist.irecv(array, 0)),
    "probe": [lambda: dist.probe(9)],
    "P2POp": [
        lambda: dist.P2POp(dist.send, floats(), 0),
        lambda: dist.P2POp(dist.isend, floats(), 9),
    ],
    "batch_isend_irecv": [lambda: dist.batch_isend_irecv(5)],
    "all_gather_object": [
        lambda: dist.all_gather_object(None, 1),
        lambda: dist.all_gather_object([], 1),
    ],
    "gather_object": [lambda: dist.gather_object(1, None, dst=9)],
    "scatter_object_list": [
        lambda: dist.scatter_object_list([], [1], src=0),
        lambda: dist.scatter_object_list([None], None, src=0),
        lambda: dist.scatter_object_list([None], [1, 2], src=0),
    ],
    "send_object_list": [lambda: dist.send_object_list([1], 0)],
    "monitored_barrier": [lambda: dist.monitored_barrier(timeout=5)],
    "new_group": [
        lambda: dist.new_group([0, 0]),
        lambda: dist.new_group([9]),
        lambda: dist.new_group([]),
        lambda: dist.new_group(5),
        lambda: dist.new_group([0], timeout=5),
    ],
    "new_subgroups": [lambda: dist.new_subgroups(0), lambda: dist.new_subgroups(3)],
    "split_group": [
        lambda: dist.split_group(None, [[0], [0]]),
        lambda: dist.split_group(None, 5),
    ],
    "shrink_group": [lambda: dist.shrink_group([9])],
    "add": [lambda: dist.HashStore().add("key", "value")],
}


@pytest.mark.parametrize("operation", CALLS)
def test_it_names_the_operation(operation):
    def body(rank):
        for call in CALLS[operation]:
            with pytest.raises(
                (ValueError, TypeError, RuntimeError, IndexError)
            ) as raised:
                call()
            text = str(raised.value)
            assert re.search(rf"\b{operation}\b", text), text
            assert "\n" not in text

    run_ranks(1, body)


def test_what_the_engine_refuses_is_also_torchs_runtime_error():
    def body(rank):
        one, two = np.zeros(1), np.zeros(2)
        for kind in RuntimeError, ValueError, dist.ArgumentError:
            with pytest.raises(kind, match=r"all_gather: output .* has 2 elements"):
                dist.all_gather([two, two + 1], one)
            with pytest.raises(kind, match=r"output_tensor .*; invalid tensor size"):
                dist.all_gather_single(one, one)
            with pytest.raises(kind, match="with different dtypes: found float64 and"):
                dist.all_gather_single(two.astype(np.float32), one)
        text = "all_reduce: numpy array of dtype .*can be communicated"
        for kind in RuntimeError, TypeError, dist.UnsupportedDTypeError:
            with pytest.raises(kind, match=text):
                dist.all_reduce(np.array(["a"]))
        with pytest.raises(
            RuntimeError, match=r"Incorrect output list size 1. Output list size should"
        ):
            dist.all_gather([one], one)

    run_ranks(2, body)
