"""The gradients of a step, averaged across the ranks: many arrays in few operations.

Arrays of one dtype share a *bucket*, which is one operation, as if they lay in a row.
A bucket starts when the next array would make it larger than its limit. So where the
buckets begin depends on nothing but the arrays' dtypes and sizes, in which the ranks
agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Literal, overload

from allhands._C import DType
from allhands.arrays import Array, SparseArrayError, as_buffer
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

    Every rank passes as many arrays, in one order, each of the same dtype and number of
    elements; dtypes may differ within a list, and layouts between ranks. The arrays of
    a dtype go together, in buckets, so that many small ones take hardly longer than
    one. Each comes out as `all_reduce` with AVG leaves it: with the same bits on every
    rank, whatever else is in the list.

    `arrays` may be a generator that computes them one by one, say from the last layer
    to the first: each bucket is on its way while the next arrays are computed.

    What a rank passes counts as 1 / size of the result. Where ranks have different
    numbers of samples, sum over the samples and divide by those of all ranks / size.

    Returns:
        A `Work` if `async_op`, for all of the arrays; else None.

    Raises:
        TypeError: one is no array, or of bool. As with what a generator raises, the
            buckets before it have come to their end by then.
        ValueError: one is read-only; `bucket_cap_mb` is not positive.

    Example:
        ```python
        gradients = [np.ones((3, 4), np.float32), np.ones(4, np.float32)]
        dist.average_gradients(gradients)
        ```
    """
    if not bucket_cap_mb > 0:
        raise ValueError(f"bucket_cap_mb must be positive, got {bucket_cap_mb}")
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


class _Buckets:
    """The arrays of one call, as operations of `communicator`.

    Args:
        communicator: carries them out.
        limit: bytes of a bucket; an array that is larger is one by itself.
        timeout: of each operation.
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
        """Take `array`; starts what is full without it."""
        self._arrays.append(array)
        try:
            buffer = as_buffer(array, writable=True, name="arrays")
        except SparseArrayError:  # its size is this rank's own
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
        """Start what is left; the operation that all of them are together."""
        for bucket, _ in self._filling.values():
            self._start(bucket)
        return CombinedWork(self._works, self._arrays)

    def end(self) -> None:
        """Wait until what was started writes to no array any more."""
        for work in self._works:
            with suppress(DistError):  # another error is under way
                work.wait()

    def _start(self, bucket: list[Array]) -> None:
        if len(bucket) == 1:  # needs no memory of its own
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
