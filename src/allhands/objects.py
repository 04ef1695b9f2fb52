"""Any Python objects between ranks, by pickle.

An object goes as *sections*: its pickle (protocol 5), then each large buffer that this
refers to, such as the data of a NumPy array. A buffer is sent from where it lies and
received where the new object keeps it, so it is never copied. First go the numbers of
sections, then their sizes, which are checked before memory is taken for them.

What holds for all of these functions, and is not repeated below:

- Only for ranks that trust each other: unpickling runs code that the sender chose. The
  ranks of a world are processes of one user who proved that they know the job's secret.
- Arguments are checked before anything is sent. An object that cannot be pickled raises
  on its rank, and `DistBackendError` on the others of a collective.
- `device` and `use_batch` are accepted as in torch.distributed and change nothing:
  objects come to CPU memory.
- `timeout` limits the whole call; by default the group's timeout does.
"""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np

from allhands.arguments import Group, check_one_root, root_of, warn_non_member
from allhands.errors import DistBackendError
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

Section: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_LEAST_BUFFER = 1 << 16  # smaller ones cost less as a part of the pickle
_NOTHING: Section = np.empty(0, np.uint8)
_FAILED = -1  # as a number of sections: the object could not be pickled

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
    wire = _Wire(member, timeout)
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
    root = check_one_root("gather_object", member, dst, group_dst)
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
    objects = _Wire(member, timeout).collect(obj, root)
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
    raises `CollectiveMismatchError`.

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
    root = check_one_root("broadcast_object_list", member, src, group_src)
    wire = _Wire(member, timeout)
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
    root = check_one_root("scatter_object_list", member, src, group_src)
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
    scatter_object_output_list[0] = _Wire(member, timeout).scatter(inputs, root)


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
    member = _member(group)
    target = root_of(member, dst, group_dst)
    member.check_peer("destination", target)
    _Wire(member, timeout).send(object_list, target)


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
        see `send_object_list`
    """
    _check_is_list("object_list", object_list)
    member = _member(group)
    source = None
    if src is not None or group_src is not None:
        source = root_of(member, src, group_src)
        member.check_peer("source", source)
    sender, objects = _Wire(member, timeout).receive(len(object_list), source)
    object_list[:] = objects
    return member.global_rank(sender)


class _Wire:
    """The arrays of one call, each in turn, within one time limit."""

    def __init__(self, member: ProcessGroup, timeout: timedelta | None) -> None:
        self._rank = member.rank()
        self._size = member.size()
        self._end = time.monotonic() + member.limit(timeout)
        self._communicator = member.serving(_NOTHING)

    def _left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def collect(self, obj: Any, root: int | None) -> list[Any]:
        """The objects of all ranks; on other ranks than `root`, if given, none."""
        sections, error = _try(lambda: _pickled(obj))
        counts: Numbers = np.empty(self._size, np.int64)
        mine = np.array([_FAILED if error else len(sections)])
        self._communicator.all_gather_single(counts, mine, self._left(), False)
        _check_counts(counts, error)
        receives = root is None or root == self._rank
        sizes = [np.empty(n, np.int64) for n in counts] if receives else []
        self._gather(_sizes(sections), sizes, root)
        parcels = [_room_for(numbers) for numbers in sizes]
        for place in range(int(counts.max())):
            outputs = [_at(parcel, place) for parcel in parcels]
            self._gather(_at(sections, place), outputs, root)
        return [_unpickled(parcel) for parcel in parcels]

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

    def broadcast(self, objects: list[Any], root: int) -> None:
        sections, error = _try(lambda: _pickled(objects))
        counts = np.full(len(objects), _FAILED if error else len(sections))
        self._communicator.broadcast(counts, root, self._left(), False)
        _check_counts(counts, error)
        for tensor in [_sizes(sections), *sections] if objects else []:
            self._communicator.broadcast(tensor, root, self._left(), False)

    def receive_broadcast(self, length: int, root: int) -> list[Any]:
        # An entry for each object, so that lists of different lengths are a mismatch.
        counts: Numbers = np.empty(length, np.int64)
        self._communicator.broadcast(counts, root, self._left(), False)
        _check_counts(counts, None, root)
        if not length:
            return []
        sizes: Numbers = np.empty(counts[0], np.int64)
        self._communicator.broadcast(sizes, root, self._left(), False)
        sections = _room_for(sizes)
        for section in sections:
            self._communicator.broadcast(section, root, self._left(), False)
        return list(_unpickled(sections))

    def scatter(self, inputs: list[Any] | None, root: int) -> Any:
        """This rank's object; `inputs` on `root` only."""
        parcels, error = _try(lambda: [_pickled(obj) for obj in inputs or []])
        counts: Numbers = np.full(self._size, _FAILED)
        if inputs is not None and error is None:
            counts[:] = [len(parcel) for parcel in parcels]
        self._communicator.broadcast(counts, root, self._left(), False)
        _check_counts(counts, error, root)
        sizes: Numbers = np.empty(counts[self._rank], np.int64)
        self._scatter(sizes, [_sizes(parcel) for parcel in parcels], root)
        mine = _room_for(sizes)
        for place in range(int(counts.max())):
            sections = [_at(parcel, place) for parcel in parcels]
            self._scatter(_at(mine, place), sections, root)
        return _unpickled(mine)

    def send(self, objects: list[Any], peer: int) -> None:
        sections = _pickled(objects)
        serial = next(_serials) % _NUM_SERIALS
        # An entry for each object, so that lists of different lengths are a mismatch.
        announcement = np.full(len(objects), serial << 32 | len(sections))
        self._communicator.send(announcement, peer, _ANNOUNCEMENT, self._left())
        for tensor in [_sizes(sections), *sections] if objects else []:
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
        sizes: Numbers = np.empty(count, np.int64)
        self._communicator.recv(sizes, source, tag, self._left())
        sections = _room_for(sizes)
        for section in sections:
            self._communicator.recv(section, source, tag, self._left())
        return source, list(_unpickled(sections))


def _pickled(obj: Any) -> list[Section]:
    """The pickle of `obj` and the large buffers that it refers to."""
    buffers: list[Section] = []

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LEAST_BUFFER:
            return True
        buffers.append(np.frombuffer(raw, np.uint8))
        return False

    stream = pickle.dumps(obj, protocol=5, buffer_callback=stays_inside)
    return [np.frombuffer(stream, np.uint8), *buffers]


def _unpickled(sections: list[Section]) -> Any:
    return pickle.loads(sections[0].data, buffers=sections[1:])


def _sizes(sections: Sequence[Section]) -> Numbers:
    return np.array([section.nbytes for section in sections], np.int64)


def _room_for(sizes: Numbers) -> list[Section]:
    """Memory for sections of these sizes, if they can be true."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    total = sum(int(size) for size in sizes)
    if any(size < 0 for size in sizes) or total > memory:
        raise DistBackendError(
            f"an object of {total} bytes is announced, this host has {memory}"
        )
    return [np.empty(size, np.uint8) for size in sizes]


def _at(sections: list[Section], place: int) -> Section:
    return sections[place] if place < len(sections) else _NOTHING


def _try(
    call: Callable[[], list[Any]],
) -> tuple[list[Any], BaseException | None]:
    """What `call` returns, or nothing and what it raised."""
    try:
        return call(), None
    except Exception as error:
        return [], error


def _check_counts(
    counts: Numbers, error: BaseException | None, root: int | None = None
) -> None:
    """Raise this rank's error, or tell that of another."""
    if error is not None:
        raise error
    failed = [rank for rank, count in enumerate(counts) if count == _FAILED]
    if failed:
        who = failed if root is None else [root]
        raise DistBackendError(f"ranks {who} of the group could not pickle an object")


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


def _member(group: Group) -> ProcessGroup:
    member = resolve(group)
    if member is None:
        raise ValueError(
            "Invalid process group specified: this rank is not in it, and only its "
            "members can exchange messages"
        )
    return member
