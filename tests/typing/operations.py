"""What type checkers make of the operations' results: `make types` reads it."""

from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import assert_type

import allhands as dist

Array: TypeAlias = "npt.NDArray[np.float32]"


def shared() -> None:
    """The dtype's library tells which arrays `empty_shared` makes."""
    array = dist.empty_shared(3, np.float32)
    assert_type(array, npt.NDArray[np.float32])
    assert_type(dist.peer_array(array, 0), npt.NDArray[np.float32])
    assert_type(dist.empty_shared((2, 3), np.dtype(np.int8)), npt.NDArray[np.int8])
    assert_type(dist.empty_shared((2, 3), "float32"), npt.NDArray[Any])
    assert_type(dist.empty_shared((2, 3), torch.float32), torch.Tensor)


def synchronous(x: Array, xs: list[Array]) -> None:
    """Nothing is returned, which may be said in words, too."""
    assert_type(dist.all_reduce(x), None)
    assert_type(dist.all_reduce(x, dist.ReduceOp.AVG, None, False), None)
    assert_type(dist.all_reduce(x, async_op=False, timeout=timedelta(1)), None)
    assert_type(dist.reduce(x, 0), None)
    assert_type(dist.scan(x, x), None)
    assert_type(dist.exscan(x, x), None)
    assert_type(dist.reduce_scatter(x, xs), None)
    assert_type(dist.reduce_scatter_single(x, x), None)
    assert_type(dist.reduce_scatter_tensor(x, x), None)
    assert_type(dist.broadcast(x, 0), None)
    assert_type(dist.all_gather(xs, x), None)
    assert_type(dist.all_gather_single(x, x), None)
    assert_type(dist.all_gather_into_tensor(x, x), None)
    assert_type(dist.gather(x, xs, 0), None)
    assert_type(dist.gather_single(x, x, 0), None)
    assert_type(dist.gather_into_tensor(x, x, 0), None)
    assert_type(dist.scatter(x, xs, 0), None)
    assert_type(dist.all_to_all(xs, xs), None)
    assert_type(dist.all_to_all_single(x, x), None)
    assert_type(dist.barrier(), None)


def asynchronous(x: Array, xs: list[Array]) -> None:
    """A Work is, which needs no look for None."""
    assert_type(dist.all_reduce(x, async_op=True), dist.Work)
    assert_type(dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True), dist.Work)
    assert_type(dist.reduce(x, 0, async_op=True), dist.Work)
    assert_type(dist.scan(x, x, async_op=True), dist.Work)
    assert_type(dist.exscan(x, x, async_op=True), dist.Work)
    assert_type(dist.reduce_scatter(x, xs, async_op=True), dist.Work)
    assert_type(dist.reduce_scatter_single(x, x, async_op=True), dist.Work)
    assert_type(dist.reduce_scatter_tensor(x, x, async_op=True), dist.Work)
    assert_type(dist.broadcast(x, 0, async_op=True, group_src=None), dist.Work)
    assert_type(dist.all_gather(xs, x, async_op=True), dist.Work)
    assert_type(dist.all_gather_single(x, x, async_op=True), dist.Work)
    assert_type(dist.all_gather_into_tensor(x, x, async_op=True), dist.Work)
    assert_type(dist.gather(x, xs, 0, async_op=True), dist.Work)
    assert_type(dist.gather_single(x, x, 0, async_op=True), dist.Work)
    assert_type(dist.gather_into_tensor(x, x, 0, async_op=True), dist.Work)
    assert_type(dist.scatter(x, xs, 0, async_op=True), dist.Work)
    assert_type(dist.all_to_all(xs, xs, async_op=True), dist.Work)
    assert_type(dist.all_to_all_single(x, x, async_op=True), dist.Work)
    assert_type(dist.barrier(async_op=True), dist.Work)
    assert_type(dist.gatherv(x, xs, 0, async_op=True), dist.Work)
    assert_type(dist.scatterv(x, xs, 0, async_op=True), dist.Work)


def either(x: Array, async_op: bool) -> None:
    """Where it is not known, both are possible."""
    assert_type(dist.all_reduce(x, async_op=async_op), dist.Work | None)
    assert_type(dist.all_reduce(x, dist.ReduceOp.SUM, None, async_op), dist.Work | None)
    assert_type(dist.barrier(None, async_op), dist.Work | None)


def messages(x: Array) -> None:
    """As torch has them."""
    assert_type(dist.send(x, 1), None)
    assert_type(dist.recv(x, 1), int)
    assert_type(dist.isend(x, 1), dist.Work | None)
    assert_type(dist.irecv(x, 1), dist.Work | None)
    assert_type(dist.recv(x, tag=dist.ANY_TAG, status=dist.Status()), int)
    assert_type(dist.probe(), dist.Status)
    assert_type(dist.iprobe(), dist.Status | None)
    assert_type(dist.wait_any([dist.irecv(x, 1), None]), int | None)
    assert_type(dist.wait_some([]), list[int])
    operations = [dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, x, 1)]
    assert_type(dist.batch_isend_irecv(operations), list[dist.Work])
