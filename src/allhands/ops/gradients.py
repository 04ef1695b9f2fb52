"""Averages the gradients of a step across the ranks: many arrays in few operations.

Arrays of one dtype share a *bucket*. A bucket is one operation, as if its arrays were
adjacent in memory. A bucket starts when the next array would make it larger than its
limit. So the borders of buckets depend only on the dtypes and sizes of the arrays,
which are the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Literal, overload

import numpy as np

from allhands._C import DType
from allhands.arrays import Array, SparseArrayError, describe
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.work import CombinedWork, Work
from allhands.errors import DistError
from allhands.groups.arguments import Group, is_outside, resolve
from allhands.options import ReduceOp

__all__ = ["average_gradients"]

_MIB = 1 << 20


@overload
def average_gradients(
    arrays: Iterable[Array],
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    bucket_cap_mb: float = 1,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def average_gradients(
    arrays: Iterable[Array],
    group: Group = None,
    *,
    async_op: Literal[True],
    bucket_cap_mb: float = 1,
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def average_gradients(
    arrays: Iterable[Array],
    group: Group = None,
    async_op: bool = False,
    *,
    bucket_cap_mb: float = 1,
    timeout: timedelta | None = None,
) -> Work | None: ...
def average_gradients(
    arrays: Iterable[Array],
    group: Group = None,
    async_op: bool = False,
    *,
    bucket_cap_mb: float = 1,
    timeout: timedelta | None = None,
) -> Work | None:
    """Average each of `arrays` across all ranks of `group`, in place, in one call.

    Every rank passes the same number of arrays in the same order, and each array has
    the same dtype and number of elements on all ranks. Dtypes may differ within a list,
    and layouts may differ between ranks. Arrays of one dtype go together in buckets, so
    many small arrays take hardly longer than one. Each array gets the result of
    `all_reduce` with AVG: the same bits on every rank, whatever else is in the list.

    `arrays` may be a generator that computes the arrays one by one, for example from
    the last layer to the first. Then each bucket is reduced while the next arrays are
    computed.

    The arrays of each rank count as 1 / size of the result. If ranks have different
    numbers of samples, sum over the samples of a rank, and divide by (the number of
    samples of all ranks) / size.

    Returns:
        A `Work` for all of the arrays if `async_op`, else None.

    Raises:
        TypeError: `arrays` is a dict or cannot be iterated over; `bucket_cap_mb` is no
            number; or an entry is not an array, or is an array of bool. The buckets
            before that entry have ended by then, as they have if the generator raises
            an error.
        ValueError: an array is read-only; `bucket_cap_mb` is not positive.

    Example:
        ```python
        gradients = [np.ones((3, 4), np.float32), np.ones(4, np.float32)]
        dist.average_gradients(gradients)
        ```
    """
    _check(arrays, bucket_cap_mb)
    member = resolve(group)
    if is_outside(member, "average_gradients"):
        return None
    buckets = _Buckets(member.communicator, bucket_cap_mb * _MIB, timeout)
    try:
        for array in arrays:
            buckets.add(array)
        work = buckets.finish()
    except BaseException:
        buckets.end()
        raise
    if async_op:
        return work
    work.wait()
    return None


def _check(arrays: object, bucket_cap_mb: float) -> None:
    if isinstance(arrays, Mapping) or not isinstance(arrays, Iterable):
        remedy = "; pass its values()" if isinstance(arrays, Mapping) else ""
        raise TypeError(
            f"average_gradients: arrays must be a list or another iterable of arrays, "
            f"got {type(arrays).__name__}{remedy}"
        )
    if isinstance(arrays, np.ndarray) and arrays.ndim == 1 and arrays.dtype != object:
        raise TypeError(
            "average_gradients: arrays must be a list or another iterable of arrays, "
            f"got one array of {arrays.size} numbers; pass [array]"
        )
    if not hasattr(bucket_cap_mb, "__float__"):
        raise TypeError(
            f"average_gradients: bucket_cap_mb must be a number, got {bucket_cap_mb!r}"
        )
    if not bucket_cap_mb > 0:
        raise ValueError(
            f"average_gradients: bucket_cap_mb must be positive, got {bucket_cap_mb}"
        )


class _Buckets:
    """Turns the arrays of one call into operations of `communicator`.

    Args:
        communicator: carries out the operations.
        limit: bytes of a bucket; a larger array is a bucket by itself.
        timeout: the limit of each operation.
    """

    def __init__(
        self, communicator: Communicator, limit: float, timeout: timedelta | None
    ) -> None:
        self._communicator = communicator
        self._limit = limit
        self._timeout = timeout
        self._filling: dict[DType, tuple[list[Array], int]] = {}
        self._works: list[Work] = []
        self._arrays: list[Array] = []

    def add(self, array: Array) -> None:
        """Add `array`; if the bucket of its dtype has no room, start that bucket."""
        self._arrays.append(array)
        try:
            buffer = describe(array, writable=True, name="arrays")
        except SparseArrayError:  # its size differs between ranks
            self._start([array])
            return
        bucket, size = self._filling.get(buffer.dtype, ([], 0))
        size += buffer.num_bytes
        if bucket and size > self._limit:
            self._start(bucket)
            bucket, size = [], buffer.num_bytes
        bucket.append(array)
        self._filling[buffer.dtype] = bucket, size

    def finish(self) -> Work:
        """Start the remaining buckets; return one operation for all of them."""
        for bucket, _ in self._filling.values():
            self._start(bucket)
        return CombinedWork(self._works, self._arrays)

    def end(self) -> None:
        """Wait until the started operations no longer write to any array."""
        for work in self._works:
            with suppress(DistError):  # another error is being raised
                work.wait()

    def _start(self, bucket: list[Array]) -> None:
        if len(bucket) == 1:  # needs no memory for a bucket
            work = self._communicator.all_reduce(
                bucket[0], ReduceOp.AVG, self._timeout, True
            )
        else:
            work = self._communicator.submit(
                Call(
                    "all_reduce_coalesced",
                    *(bucket, bucket, self._timeout, True),
                    reduce_op=ReduceOp.AVG,
                )
            )
        assert work is not None, "an asynchronous operation of a backend returns a Work"
        self._works.append(work)
