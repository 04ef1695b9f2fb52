"""Any Python objects between ranks, by pickle.

An object goes as the sections of a `Parcel`: first how many there are, then their
sizes, which are checked before memory is taken for them, then one after the other. So
the data of NumPy arrays and torch CPU tensors is not copied on its way, and receiving
takes little more memory than the object has; only a `str` is there twice while it is
decoded.

What holds for all of these functions, and is not repeated below:

- Only for ranks that trust each other: unpickling runs code that the sender chose. The
  ranks of a world are processes of one user who proved that they know the job's secret.
- Arguments are checked before anything is sent. An object that cannot be pickled raises
  on its rank, and `DistBackendError` on the others of a collective. One that a rank has
  no memory for raises `DistBackendError` or `MemoryError` there, and
  `CollectiveMismatchError` on the others of a collective and the sender of a message.
- A large torch tensor arrives in memory that cannot be resized (`Tensor.resize_`).
- `device` and `use_batch` are accepted as in torch.distributed and change nothing:
  objects come to CPU memory.
- `timeout` limits the whole call; by default the group's timeout does.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from allhands.arguments import Group, member_of, warn_non_member
from allhands.errors import CollectiveMismatchError, DistBackendError, DistError
from allhands.options import to_seconds
from allhands.parcel import NOTHING, Numbers, Parcel, Section, pack, room_for, unpack
from allhands.process_group import ProcessGroup
from allhands.world import resolve

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]

T = TypeVar("T")

_FAILED = -1  # as a count: the object could not be pickled
_SMALL = 1 << 16  # bytes that a receiver always has memory for

# Tags that no caller can use. What follows an announcement has a tag of its own, so
# that nothing is mistaken for the remains of a call that failed.
_ANNOUNCEMENT = 2**31
_serials = itertools.count()
_NUM_SERIALS = 2**30


def all_gather_object(
    object_list: list[Any],
    obj: Any,
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Collect `obj` of every rank in `object_list` of every rank, by group rank.

    Raises:
        IndexError: `object_list` is shorter than the group is large.

    Example:
        ```python
        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, socket.gethostname())
        ```
    """
    member = resolve(group)
    if member is None:
        warn_non_member("all_gather_object")
        return
    _check_room("object_list", object_list, member.size())
    with _Wire("all_gather_object", member, timeout) as wire:
        object_list[: member.size()] = wire.collect(obj, None)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Collect `obj` of every rank in `object_gather_list` of one rank, by group rank.

    The destination is `dst`, a global rank (0 by default), or `group_dst`, a rank of
    `group`. Only it passes a list.

    Raises:
        ValueError: the list is missing there, or given elsewhere.
        IndexError: it is shorter than the group is large.

    Example:
        ```python
        losses = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object({"loss": loss}, losses, dst=0)
        ```
    """
    member = resolve(group)
    if member is None:
        warn_non_member("gather_object")
        return
    root = _root(member, dst, group_dst)
    is_root = member.rank() == root
    if is_root and not object_gather_list:
        raise ValueError(
            "Argument ``object_gather_list`` must be specified on destination rank."
        )
    if not is_root and object_gather_list:
        raise ValueError(
            "Argument ``object_gather_list`` must NOT be specified on non-destination "
            "ranks."
        )
    if object_gather_list:
        _check_room("object_gather_list", object_gather_list, member.size())
    with _Wire("gather_object", member, timeout) as wire:
        objects = wire.collect(obj, root)
    if object_gather_list:
        object_gather_list[: member.size()] = objects


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: Any = None,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Replace the entries of `object_list` by those of one rank.

    The source is `src`, a global rank (0 by default), or `group_src`, a rank of
    `group`; its list stays as it is. All lists have the same length, or every rank
    raises `CollectiveMismatchError`. What is no list is a `TypeError`.

    Example:
        ```python
        options = [parse_arguments() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(options, src=0)
        ```
    """
    _check_is_list("object_list", object_list)
    member = resolve(group)
    if member is None:
        warn_non_member("broadcast_object_list")
        return
    root = _root(member, src, group_src)
    with _Wire("broadcast_object_list", member, timeout) as wire:
        if member.rank() == root:
            wire.broadcast(object_list, root)
        else:
            object_list[:] = wire.receive_broadcast(len(object_list), root)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Give each rank its entry of one rank's input list, as its output list's first.

    The source is `src`, a global rank (0 by default), or `group_src`, a rank of
    `group`; the input lists of others are ignored.

    Raises:
        ValueError: an output list is empty; the source's input list is missing or has
            not one entry per rank.

    Example:
        ```python
        mine = [None]
        dist.scatter_object_list(mine, parts if dist.get_rank() == 0 else None, src=0)
        ```
    """
    member = resolve(group)
    if member is None:
        warn_non_member("scatter_object_list")
        return
    if not isinstance(scatter_object_output_list, list) or (
        not scatter_object_output_list
    ):
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at "
            "least 1."
        )
    root = _root(member, src, group_src)
    inputs = scatter_object_input_list if member.rank() == root else None
    if member.rank() == root:
        if inputs is None:
            raise ValueError(
                "source rank must provide non-None scatter_object_input_list"
            )
        if len(inputs) != member.size():
            raise ValueError(
                f"scatter_object_input_list has {len(inputs)} entries, it needs one "
                f"per rank: {member.size()}"
            )
    with _Wire("scatter_object_list", member, timeout) as wire:
        scatter_object_output_list[0] = wire.scatter(inputs, root)


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Group = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Send the entries of `object_list` to one rank, which calls `recv_object_list`.

    The destination is `dst`, a global rank, or `group_dst`, a rank of `group`. Its list
    has the same length, or both sides raise `CollectiveMismatchError`.

    Raises:
        ValueError: no such rank, or this rank itself; this rank is not in the group.

    Example:
        ```python
        if dist.get_rank() == 0:
            dist.send_object_list(["task", {"size": 3}], dst=1)
        else:
            task = [None, None]
            dist.recv_object_list(task, src=0)
        ```
    """
    _check_is_list("object_list", object_list)
    member = member_of(group)
    target = member.peer_meant("destination", dst, group_dst)
    with _Wire("send_object_list", member, timeout) as wire:
        wire.send(object_list, target)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
    *,
    timeout: timedelta | None = None,
) -> int:
    """Replace the entries of `object_list` by those that one rank sends.

    The source is `src`, a global rank, or `group_src`, a rank of `group`; with neither,
    whichever rank sends first.

    Returns:
        The sender's global rank.

    Raises:
        ValueError: no such rank, or this rank itself; this rank is not in the group.

    Example:
        ```python
        sender = dist.recv_object_list(task)  # of whichever rank sends first
        ```
    """
    _check_is_list("object_list", object_list)
    member = member_of(group)
    source = None
    if src is not None or group_src is not None:
        source = member.peer_meant("source", src, group_src)
    with _Wire("recv_object_list", member, timeout) as wire:
        sender, objects = wire.receive(len(object_list), source)
    object_list[:] = objects
    return member.global_rank(sender)


class _Wire:
    """The arrays of one call, each in turn, in one time limit; errors name the call."""

    def __init__(
        self, operation: str, member: ProcessGroup, timeout: timedelta | None
    ) -> None:
        self._operation = operation
        self._rank = member.rank()
        self._size = member.size()
        self._limit = to_seconds(member.timeout if timeout is None else timeout)
        self._end = time.monotonic() + self._limit
        self._communicator = member.communicator

    def __enter__(self) -> _Wire:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, DistError):  # its limit is what was left for one array
            limit = f" (limit {self._limit:.2f} s)" * isinstance(error, TimeoutError)
            error.args = (f"{self._operation}{limit}: {error}",)

    def _left(self) -> timedelta:
        return timedelta(seconds=max(0.0, self._end - time.monotonic()))

    def collect(self, obj: Any, root: int | None) -> list[Any]:
        """The objects of all ranks; on other ranks than `root`, if given, none."""
        return [unpack(parcel) for parcel in self._parcels(obj, root)]

    def _parcels(self, obj: Any, root: int | None) -> list[Parcel]:
        mine, error = _try(lambda: pack(obj))
        own = np.empty(0) if mine is None else mine.numbers()
        counts: Numbers = np.empty(self._size, np.int64)
        count = np.array([_FAILED if mine is None else own.size])
        self._communicator.all_gather_single(counts, count, self._left(), False)
        _check_counts(counts, error)
        assert mine is not None, "or there was an error"
        receives = root is None or root == self._rank
        numbers = [np.empty(n, np.int64) for n in counts] if receives else []
        self._gather(own, numbers, root)
        parcels = self._room_for(
            numbers, lambda: self._gather(NOTHING, [NOTHING] * self._size, root)
        )
        for place in range(int(counts.max()) - 1):
            outputs = [parcel.at(place) for parcel in parcels]
            self._gather(mine.at(place), outputs, root)
        return parcels

    def _gather(self, tensor: Any, outputs: list[Any], root: int | None) -> None:
        limit = self._left()
        if root is None:
            self._communicator.all_gather(outputs, tensor, limit, False)
        else:
            # Of different sizes, so it is all_to_all where all but `root` get nothing.
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

    @staticmethod
    def _room_for(numbers: list[Numbers], refuse: Callable[[], object]) -> list[Parcel]:
        """`room_for`; where there is none, `refuse` is to let the peers know.

        It takes part in what comes next with other sizes than announced.
        """
        try:
            return room_for(numbers)
        except (DistBackendError, MemoryError):
            with suppress(CollectiveMismatchError):
                refuse()
            raise

    def broadcast(self, objects: list[Any], root: int) -> None:
        """Send `objects` to all others."""
        parcel, error = _try(lambda: pack(objects))
        count = _FAILED if parcel is None else len(parcel.numbers())
        counts = np.full(len(objects), count)
        self._broadcast(root, counts)
        _check_counts(counts, error)
        if objects and parcel is not None:
            self._broadcast(root, parcel.numbers(), *parcel.sections())

    def receive_broadcast(self, length: int, root: int) -> list[Any]:
        """The `length` objects of `root`."""
        # An entry for each object, so that lists of different lengths are a mismatch.
        counts: Numbers = np.empty(length, np.int64)
        self._broadcast(root, counts)
        _check_counts(counts, None, root)
        if not length:
            return []
        numbers: Numbers = np.empty(counts[0], np.int64)
        self._broadcast(root, numbers)
        [parcel] = self._room_for([numbers], lambda: self._broadcast(root, NOTHING))
        self._broadcast(root, *parcel.sections())
        return list(unpack(parcel))

    def scatter(self, inputs: list[Any] | None, root: int) -> Any:
        """This rank's object; `inputs` on `root` only."""
        return unpack(self._scattered(inputs, root))

    def _scattered(self, inputs: list[Any] | None, root: int) -> Parcel:
        parcels, error = _try(lambda: [pack(obj) for obj in inputs or []])
        counts: Numbers = np.full(self._size, _FAILED)
        if inputs is not None and parcels is not None:
            counts[:] = [len(parcel.numbers()) for parcel in parcels]
        self._broadcast(root, counts)
        _check_counts(counts, error, root)
        assert parcels is not None, "or there was an error"
        numbers: Numbers = np.empty(counts[self._rank], np.int64)
        self._scatter(numbers, [parcel.numbers() for parcel in parcels], root)
        [mine] = self._room_for([numbers], lambda: self._scatter(NOTHING, [], root))
        for place in range(int(counts.max()) - 1):
            sections = [parcel.at(place) for parcel in parcels]
            self._scatter(mine.at(place), sections, root)
        return mine

    def send(self, objects: list[Any], peer: int) -> None:
        """Send `objects` to `peer`."""
        parcel = pack(objects)
        numbers = parcel.numbers()
        serial = next(_serials) % _NUM_SERIALS
        # An entry for each object, so that lists of different lengths are a mismatch.
        announcement = np.full(len(objects), serial << 32 | len(numbers))
        self._communicator.send(announcement, peer, _ANNOUNCEMENT, self._left())
        for tensor in [numbers, *parcel.sections()] if objects else []:
            tag = _ANNOUNCEMENT + 1 + serial
            self._communicator.send(tensor, peer, tag, self._left())

    def receive(self, length: int, peer: int | None) -> tuple[int, list[Any]]:
        """The sender's group rank and what it sent."""
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

        numbers: Numbers = np.empty(count, np.int64)
        receive(numbers)
        [parcel] = self._room_for([numbers], lambda: _refuse(numbers[1:], receive))
        receive(*parcel.sections())
        return source, list(unpack(parcel))


def _refuse(sizes: Numbers, receive: Callable[[Section], object]) -> None:
    """Receive what is small, which may have left already, up to the first large one."""
    for size in sizes:
        receive(np.empty(size, np.uint8) if size < _SMALL else NOTHING)


def _try(call: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """What `call` returns, or what it raised."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def _check_counts(
    counts: Numbers, error: BaseException | None, root: int | None = None
) -> None:
    """Raise this rank's error, or tell that of another."""
    if error is not None:
        raise error
    failed = [rank for rank, count in enumerate(counts.tolist()) if count == _FAILED]
    if failed:
        who = failed if root is None else [root]
        raise DistBackendError(f"ranks {who} of the group could not pickle an object")


def _root(member: ProcessGroup, root: int | None, group_root: int | None) -> int:
    rank = member.rank_meant(root, group_root, default=0)
    if not 0 <= rank < member.size():
        raise RuntimeError(
            f"invalid root rank: {rank}; it must be in [0, {member.size()})"
        )
    return rank


def _check_is_list(name: str, value: object) -> None:
    if not isinstance(value, list):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type list, "
            f"but got {type(value)} instead."
        )


def _check_room(name: str, value: list[Any], size: int) -> None:
    _check_is_list(name, value)
    if len(value) < size:
        raise IndexError(
            f"list assignment index out of range: {name} has {len(value)} entries, the "
            f"group has {size} ranks"
        )
