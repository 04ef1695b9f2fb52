"""ObjectExchange: sends and receives the objects of one call as arrays.

A sender first sends the sizes of the sections of an object. The receiver checks the
sizes before it allocates memory. Then the sections follow one after the other.

However a call ends here, even by an exception out of a signal handler, no peer keeps
waiting. If an object cannot be pickled, its rank sends a mark instead of the sizes. If
a call ends later, while peers wait for more, the rank breaks the group. Objects are
unpickled after all data has been sent.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial, reduce
from types import TracebackType
from typing import Any

import numpy as np

from allhands.errors import CollectiveMismatchError, DistBackendError, DistError
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import current
from allhands.ops.serialization import (
    NOTHING,
    Numbers,
    Section,
    Serialized,
    pack,
    room_for,
    unpack,
)
from allhands.options import to_seconds

__all__ = ["ObjectExchange"]

_FAILED = -1  # as a count: the object could not be pickled
_REDUCER = 0  # the group rank that calls a function for all ranks
_SMALL = 1 << 16  # bytes; a receiver always has memory for so many

# Callers cannot use these tags. The data after an announcement has its own tag, so a
# receiver never takes the remains of a failed call for it.
_ANNOUNCEMENT = 2**31
_serials = itertools.count()
_NUM_SERIALS = 2**30


class ObjectExchange:
    """Transfers the arrays of one call in one time limit; its errors name the call."""

    def __init__(
        self, operation: str, member: ProcessGroup, timeout: timedelta | None
    ) -> None:
        self._operation = operation
        self._rank = member.rank()
        self._size = member.size()
        self._limit = to_seconds(member.timeout if timeout is None else timeout)
        self._end = time.monotonic() + self._limit
        self._communicator = member.communicator
        self._group = member.group_name
        self._is_awaited = False
        """Whether peers have learned of this call and wait for more data."""
        self._told = current().carrying_out(member.group_name, operation)

    def __enter__(self) -> ObjectExchange:
        self._told.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._leave(error)
        finally:
            self._told.__exit__(kind, error, trace)

    def _leave(self, error: BaseException | None) -> None:
        told = (DistError, NotImplementedError)  # reach all ranks
        if self._is_awaited and not isinstance(error, told):
            self._communicator.abort(
                f"{self._operation} ended in the middle: {error!r}"
            )
        if isinstance(error, DistError):  # has the limit of one array
            limit = f" (limit {self._limit:.2f} s)" * isinstance(error, TimeoutError)
            error.args = (f"{self._operation}{limit}: {error}",)

    def _left(self) -> timedelta:
        return timedelta(seconds=max(0.0, self._end - time.monotonic()))

    @contextmanager
    def _awaited(self) -> Iterator[None]:
        """Mark the call as awaited: within the block peers wait for more data."""
        was_awaited = self._is_awaited
        self._is_awaited = True
        yield
        self._is_awaited = was_awaited

    def _packed(self, objects: list[Any], tell: Callable[[bool], object]) -> list[Any]:
        """Pickle `objects`; on failure, `tell` informs the peers without waiting."""
        try:
            return [pack(obj) for obj in objects]
        except BaseException:
            with suppress(DistError):  # then the peers know of a worse failure
                tell(True)
            self._is_awaited = False
            raise

    def _check_counts(self, counts: Numbers, root: int | None = None) -> None:
        """Raise an error if some rank could not pickle its object."""
        told = enumerate(counts.tolist())
        failed = [rank for rank, count in told if count == _FAILED]
        if failed:
            who = failed if root is None else [root]
            raise DistBackendError(
                f"ranks {who} of group '{self._group}' could not pickle an object"
            )

    def collect(self, obj: Any, root: int | None, weights_only: bool) -> list[Any]:
        """Return the objects of all ranks; none on ranks other than `root`."""
        gathered = self._gathered(obj, root)
        return [unpack(packed, weights_only) for packed in gathered]

    def all_reduce(
        self, obj: Any, op: Callable[[Any, Any], Any], weights_only: bool
    ) -> Any:
        """Return `op` of all ranks' objects in rank order; `_REDUCER` computes it."""
        if self._rank != _REDUCER:
            self._gathered(obj, _REDUCER)
            problem, result = self.receive_broadcast(2, _REDUCER, weights_only)
            if problem is not None:
                raise DistBackendError(f"rank {_REDUCER} of the group: {problem}")
            return result
        result, error = None, None
        with self._awaited():
            gathered = self._gathered(obj, _REDUCER)
            try:
                result = reduce(op, (unpack(each, weights_only) for each in gathered))
            except Exception as raised:  # the other ranks have to learn of it
                error = raised
            problem = error and f"op raised {type(error).__name__}: {error}"
            self.broadcast([problem, result], _REDUCER)
        if error is not None:
            raise error
        return result

    def _gathered(self, obj: Any, root: int | None) -> list[Serialized]:
        counts: Numbers = np.empty(self._size, np.int64)

        def exchange(count: int, async_op: bool) -> None:
            mine = np.array([count])
            self._communicator.all_gather_single(counts, mine, self._left(), async_op)

        [mine] = self._packed([obj], partial(exchange, _FAILED))
        own = mine.numbers()
        with self._awaited():
            exchange(own.size, False)
            self._check_counts(counts)
            receives = root is None or root == self._rank
            numbers = [np.empty(n, np.int64) for n in counts] if receives else []
            self._gather(own, numbers, root)
            arriving = self._room_for(
                numbers, lambda: self._gather(NOTHING, [NOTHING] * self._size, root)
            )
            for place in range(int(counts.max()) - 1):
                outputs = [packed.at(place) for packed in arriving]
                self._gather(mine.at(place), outputs, root)
        return arriving

    def _gather(self, tensor: Any, outputs: list[Any], root: int | None) -> None:
        limit = self._left()
        if root is None:
            self._communicator.all_gather(outputs, tensor, limit, False)
        else:
            # The sizes differ, so this is an all_to_all in which all but `root` get
            # nothing.
            nothing = np.empty(0, tensor.dtype)
            inputs = [tensor if r == root else nothing for r in range(self._size)]
            outputs = outputs or [nothing] * self._size
            self._communicator.all_to_all(outputs, inputs, limit, False)

    def _scatter(self, output: Any, inputs: list[Any], root: int) -> None:
        nothing = np.empty(0, output.dtype)
        outputs = [output if r == root else nothing for r in range(self._size)]
        inputs = inputs or [nothing] * self._size
        self._communicator.all_to_all(outputs, inputs, self._left(), False)

    def _broadcast(self, root: int, *tensors: Any) -> None:
        for tensor in tensors:
            self._communicator.broadcast(tensor, root, self._left(), False)

    def _room_for(
        self, numbers: list[Numbers], refuse: Callable[[], object]
    ) -> list[Serialized]:
        """Call `room_for`; if it fails, call `refuse` to inform the peers.

        `refuse` takes part in the next operation with sizes other than those announced.
        """
        try:
            return room_for(numbers)
        except (DistBackendError, MemoryError):
            with suppress(CollectiveMismatchError):
                refuse()
            self._is_awaited = False
            raise

    def broadcast(self, objects: list[Any], root: int) -> None:
        """Send `objects` to all others."""

        def announce(count: int, async_op: bool) -> None:
            # One entry per object, so that lists of different lengths cause a mismatch.
            counts = np.full(len(objects), count)
            self._communicator.broadcast(counts, root, self._left(), async_op)

        [packed] = self._packed([objects], partial(announce, _FAILED))
        with self._awaited():
            announce(len(packed.numbers()), False)
            if objects:
                self._broadcast(root, packed.numbers(), *packed.sections())

    def receive_broadcast(
        self, length: int, root: int, weights_only: bool
    ) -> list[Any]:
        """Return the `length` objects of `root`."""
        counts: Numbers = np.empty(length, np.int64)
        with self._awaited():
            self._broadcast(root, counts)
            self._check_counts(counts, root)
            if not length:
                return []
            numbers: Numbers = np.empty(counts[0], np.int64)
            self._broadcast(root, numbers)
            [packed] = self._room_for([numbers], lambda: self._broadcast(root, NOTHING))
            self._broadcast(root, *packed.sections())
        return list(unpack(packed, weights_only))

    def scatter(self, inputs: list[Any] | None, root: int, weights_only: bool) -> Any:
        """Return this rank's object; only `root` passes `inputs`."""
        return unpack(self._scattered(inputs or [], root), weights_only)

    def _scattered(self, inputs: list[Any], root: int) -> Serialized:
        counts: Numbers = np.full(self._size, _FAILED)

        def announce(async_op: bool) -> None:
            self._communicator.broadcast(counts, root, self._left(), async_op)

        outgoing = self._packed(inputs, announce)
        if inputs:
            counts[:] = [len(packed.numbers()) for packed in outgoing]
        with self._awaited():
            announce(False)
            self._check_counts(counts, root)
            numbers: Numbers = np.empty(counts[self._rank], np.int64)
            self._scatter(numbers, [packed.numbers() for packed in outgoing], root)
            [mine] = self._room_for([numbers], lambda: self._scatter(NOTHING, [], root))
            for place in range(int(counts.max()) - 1):
                sections = [packed.at(place) for packed in outgoing]
                self._scatter(mine.at(place), sections, root)
        return mine

    def send(self, objects: list[Any], peer: int) -> None:
        """Send `objects` to `peer`."""
        packed = pack(objects)
        numbers = packed.numbers()
        serial = next(_serials) % _NUM_SERIALS
        # One entry per object, so that lists of different lengths cause a mismatch.
        announcement = np.full(len(objects), serial << 32 | len(numbers))
        self._communicator.send(announcement, peer, _ANNOUNCEMENT, self._left())
        with self._awaited():
            for tensor in [numbers, *packed.sections()] if objects else []:
                tag = _ANNOUNCEMENT + 1 + serial
                self._communicator.send(tensor, peer, tag, self._left())

    def receive(
        self, length: int, peer: int | None, weights_only: bool
    ) -> tuple[int, list[Any]]:
        """Return the sender's group rank and its objects."""
        announcement: Numbers = np.empty(length, np.int64)
        source = self._communicator.recv(
            announcement, peer, _ANNOUNCEMENT, self._left()
        )
        if not length:
            return source, []
        serial, count = divmod(int(announcement[0]), 1 << 32)
        tag = _ANNOUNCEMENT + 1 + serial

        def receive(*tensors: Any) -> None:
            for tensor in tensors:
                self._communicator.recv(tensor, source, tag, self._left())

        with self._awaited():
            numbers: Numbers = np.empty(count, np.int64)
            receive(numbers)
            [packed] = self._room_for([numbers], lambda: _refuse(numbers[1:], receive))
            receive(*packed.sections())
        return source, list(unpack(packed, weights_only))


def _refuse(sizes: Numbers, receive: Callable[[Section], object]) -> None:
    """Receive the small sections, which may have left, up to the first large one."""
    for size in sizes:
        receive(np.empty(size, np.uint8) if size < _SMALL else NOTHING)
