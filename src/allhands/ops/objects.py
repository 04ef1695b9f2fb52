"""Operations on arbitrary Python objects, which travel between ranks by pickle.

An object travels as the sections of a `Serialized`: first the number of sections, then
their sizes, then the sections one after the other. The receiver checks the sizes before
it allocates memory. The data of NumPy arrays and torch CPU tensors is not copied on its
way, and receiving takes little more memory than the object itself. Only a `str` takes
its memory twice while it is decoded.

These conventions apply to all functions here. The docstrings below do not repeat them:

- Use the functions only between ranks that trust each other: unpickling runs code that
  the sender chose. The ranks of a world are processes of one user, and have proved that
  they know the job's secret. With `weights_only=True` the receiving rank runs no such
  code, as in `torch.load`. The object may then consist of Python's containers, numbers
  and texts, of NumPy arrays, dtypes and scalars, and of the classes that torch's own
  list for `weights_only` has or that the program passed to
  `torch.serialization.add_safe_globals`. Anything else raises a
  `pickle.UnpicklingError` that names it, on this rank only, and the lists do not
  change.
- Arguments are checked before any data is sent. If an object cannot be pickled, its
  rank raises the error at once, whatever it is (`SystemExit`, Ctrl-C); the other ranks
  of a collective raise `DistBackendError`. An exception out of a signal handler while
  objects are on their way breaks the group. If a rank has no memory for an object, it
  raises `DistBackendError` or `MemoryError`; the other ranks of a collective, and the
  sender of a message, raise `CollectiveMismatchError`.
- A large torch tensor arrives in memory that cannot be resized (`Tensor.resize_`).
- `device` and `use_batch` are accepted as in torch.distributed and have no effect:
  objects arrive in CPU memory.
- `timeout` limits the whole call; by default the group's timeout does.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from allhands.backends.frames import called_operation
from allhands.groups.arguments import Group, is_outside, member_of, resolve
from allhands.groups.process_group import ProcessGroup
from allhands.ops.object_exchange import ObjectExchange
from allhands.options import ReduceOp

__all__ = [
    "all_gather_object",
    "all_reduce_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "reduce_object",
    "scatter_object_list",
    "send_object_list",
]


def all_gather_object(
    object_list: list[Any],
    obj: Any,
    group: Group = None,
    weights_only: bool = False,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Collect `obj` of every rank in `object_list` of every rank, by group rank.

    Raises:
        IndexError: `object_list` has fewer entries than the group has ranks.

    Example:
        ```python
        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, socket.gethostname())
        ```
    """
    member = resolve(group)
    if is_outside(member, "all_gather_object"):
        return
    _check_room("object_list", object_list, member.size())
    with ObjectExchange("all_gather_object", member, timeout) as exchange:
        object_list[: member.size()] = exchange.collect(obj, None, weights_only)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
    weights_only: bool = False,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Collect `obj` of every rank in `object_gather_list` of one rank, by group rank.

    The destination is `dst`, a global rank (0 by default), or `group_dst`, a rank of
    `group`. Only the destination passes a list.

    Raises:
        ValueError: the list is missing on the destination, or given on another rank.
        IndexError: the list has fewer entries than the group has ranks.

    Example:
        ```python
        losses = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object({"loss": loss}, losses, dst=0)
        ```
    """
    member = resolve(group)
    if is_outside(member, "gather_object"):
        return
    root = _root(member, dst, group_dst)
    is_root = member.rank() == root
    if is_root and not object_gather_list:
        raise ValueError(
            "gather_object: Argument ``object_gather_list`` must be specified on "
            "destination rank."
        )
    if not is_root and object_gather_list:
        raise ValueError(
            f"gather_object: Argument ``object_gather_list`` must NOT be specified on "
            f"non-destination ranks; the destination is group rank {root}."
        )
    if object_gather_list:
        _check_room("object_gather_list", object_gather_list, member.size())
    with ObjectExchange("gather_object", member, timeout) as exchange:
        objects = exchange.collect(obj, root, weights_only)
    if object_gather_list:
        object_gather_list[: member.size()] = objects


def all_reduce_object(
    obj: Any,
    op: Callable[[Any, Any], Any] = operator.add,
    group: Group = None,
    weights_only: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Any:
    """Combine `obj` of all ranks by a function of two objects; all get the result.

    For the objects of group ranks 0 to 3 the result is op(op(op(0, 1), 2), 3), whether
    `op` is commutative or not. Only group rank 0 calls `op`, the function that it
    passed itself. The other ranks get its result by pickle. If `op` raises an
    `Exception`, rank 0 raises it, and the others raise a `DistBackendError` with its
    text. The group stays usable. On a rank outside the group the call returns None and
    warns.

    Returns:
        The result; each rank gets its own object.

    Raises:
        TypeError: `op` is not a function, or is a `ReduceOp`. Every rank checks its own
            `op`.

    Example:
        ```python
        words = dist.all_reduce_object(Counter(text.split()))
        loss, rank = dist.all_reduce_object((loss, dist.get_rank()), op=min)
        ```
    """
    member = resolve(group)
    if is_outside(member, "all_reduce_object"):
        return None
    _check_is_function("all_reduce_object", op)
    with ObjectExchange("all_reduce_object", member, timeout) as exchange:
        return exchange.all_reduce(obj, op, weights_only)


def reduce_object(
    obj: Any,
    dst: int | None = None,
    op: Callable[[Any, Any], Any] = operator.add,
    group: Group = None,
    group_dst: int | None = None,
    weights_only: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Any:
    """Combine `obj` of all ranks by a function of two objects; one gets the result.

    As `all_reduce_object`, but the destination, `dst`, a global rank (0 by default), or
    `group_dst`, a rank of `group`, calls `op`. The others do not wait for that, and do
    not learn what it raises.

    Returns:
        The result on the destination, None elsewhere.

    Raises:
        TypeError: `op` is no function, or a `ReduceOp`. Every rank checks its own.

    Example:
        ```python
        longest = dist.reduce_object(line, op=lambda a, b: max(a, b, key=len))
        ```
    """
    member = resolve(group)
    if is_outside(member, "reduce_object"):
        return None
    _check_is_function("reduce_object", op)
    root = _root(member, dst, group_dst)
    with ObjectExchange("reduce_object", member, timeout) as exchange:
        objects = exchange.collect(obj, root, weights_only)
    return functools.reduce(op, objects) if member.rank() == root else None


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: Any = None,
    group_src: int | None = None,
    weights_only: bool = False,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Replace the entries of `object_list` by those of one rank.

    The source is `src`, a global rank (0 by default), or `group_src`, a rank of
    `group`; its list does not change, and may be a tuple. If the lists have different
    lengths, every rank raises `CollectiveMismatchError`. An `object_list` that is not a
    list raises `TypeError`.

    Example:
        ```python
        options = [parse_arguments() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(options, src=0)
        ```
    """
    member = resolve(group)
    if is_outside(member, "broadcast_object_list"):
        return
    root = _root(member, src, group_src)
    is_source = member.rank() == root
    _check_is_list("object_list", object_list, is_read=is_source)
    with ObjectExchange("broadcast_object_list", member, timeout) as exchange:
        if is_source:
            exchange.broadcast([*object_list], root)
        else:
            object_list[:] = exchange.receive_broadcast(
                len(object_list), root, weights_only
            )


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
    weights_only: bool = False,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Give each rank its entry of one rank's input list, as its output list's first.

    The source is `src`, a global rank (0 by default), or `group_src`, a rank of
    `group`; the input lists of other ranks are ignored.

    Raises:
        ValueError: an output list is empty; the source's input list is missing or does
            not have one entry per rank.

    Example:
        ```python
        mine = [None]
        dist.scatter_object_list(mine, parts if dist.get_rank() == 0 else None, src=0)
        ```
    """
    member = resolve(group)
    if is_outside(member, "scatter_object_list"):
        return
    if not isinstance(scatter_object_output_list, list) or (
        not scatter_object_output_list
    ):
        raise ValueError(
            f"scatter_object_list: Expected argument scatter_object_output_list to be "
            f"a list of size at least 1, got {scatter_object_output_list!r}"
        )
    root = _root(member, src, group_src)
    inputs = scatter_object_input_list if member.rank() == root else None
    if member.rank() == root:
        if inputs is None:
            raise ValueError(
                f"scatter_object_list: source rank must provide non-None "
                f"scatter_object_input_list; this is the source, group rank {root}"
            )
        if len(inputs) != member.size():
            raise ValueError(
                f"scatter_object_list: scatter_object_input_list has {len(inputs)} "
                f"entries, it needs one per rank: {member.size()}"
            )
    with ObjectExchange("scatter_object_list", member, timeout) as exchange:
        scatter_object_output_list[0] = exchange.scatter(inputs, root, weights_only)


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Group = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
    weights_only: bool = False,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Send the entries of `object_list` to one rank, which calls `recv_object_list`.

    The destination is `dst`, a global rank, or `group_dst`, a rank of `group`.
    `object_list` may be a tuple. If the other list has another length, both sides raise
    `CollectiveMismatchError`. `weights_only` has no effect here: the receiver chooses
    it.

    Raises:
        ValueError: there is no such rank, or it is this rank itself; this rank is not
            in the group.

    Example:
        ```python
        if dist.get_rank() == 0:
            dist.send_object_list(["task", {"size": 3}], dst=1)
        else:
            task = [None, None]
            dist.recv_object_list(task, src=0)
        ```
    """
    _check_is_list("object_list", object_list, is_read=True)
    member = member_of(group)
    target = _other_member(member, "destination", dst, group_dst)
    with ObjectExchange("send_object_list", member, timeout) as exchange:
        exchange.send([*object_list], target)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
    weights_only: bool = False,
    *,
    timeout: timedelta | None = None,
) -> int:
    """Replace the entries of `object_list` by those that one rank sends.

    The source is `src`, a global rank, or `group_src`, a rank of `group`; with neither,
    the call receives from whichever rank sends first.

    Returns:
        The sender's global rank.

    Raises:
        ValueError: there is no such rank, or it is this rank itself; this rank is not
            in the group.

    Example:
        ```python
        sender = dist.recv_object_list(task)  # of whichever rank sends first
        ```
    """
    _check_is_list("object_list", object_list)
    member = member_of(group)
    source = None
    if src is not None or group_src is not None:
        source = _other_member(member, "source", src, group_src)
    with ObjectExchange("recv_object_list", member, timeout) as exchange:
        sender, objects = exchange.receive(len(object_list), source, weights_only)
    object_list[:] = objects
    return member.global_rank(sender)


def _other_member(
    member: ProcessGroup, role: str, rank: int | None, group_rank: int | None
) -> int:
    """Return `ProcessGroup.peer_meant`; refuse this rank: it would wait for itself."""
    peer = member.peer_meant(role, rank, group_rank)
    if peer == member.rank():
        raise ValueError(
            f"{called_operation()}: Invalid {role} rank: {role} rank should not be the "
            f"same as the rank of the current process ({peer})."
        )
    return peer


def _root(member: ProcessGroup, root: int | None, group_root: int | None) -> int:
    rank = member.rank_meant(root, group_root, default=0)
    if not 0 <= rank < member.size():
        raise RuntimeError(
            f"{called_operation()}: invalid root rank: {rank}; it must be in [0, "
            f"{member.size()})"
        )
    return rank


def _check_is_function(call: str, op: object) -> None:
    if isinstance(op, ReduceOp) or not callable(op):
        raise TypeError(
            f"{call}: op must be a function of two objects, as operator.add or max, "
            f"got {op!r}"
        )


def _check_is_list(name: str, value: object, is_read: bool = False) -> None:
    if not isinstance(value, (list, tuple) if is_read else list):
        raise TypeError(
            f"{called_operation()}: Invalid function argument. Expected parameter "
            f"`{name}` of type list, but got {type(value)} instead."
        )


def _check_room(name: str, value: list[Any], size: int) -> None:
    _check_is_list(name, value)
    if len(value) < size:
        raise IndexError(
            f"{called_operation()}: list assignment index out of range: {name} has "
            f"{len(value)} entries, the group has {size} ranks"
        )
