"""Messages from one rank to another: send and receive, blocking or not.

These conventions apply to all messages. The docstrings below do not repeat them:

- A message goes to the oldest receive of its destination that names its source (or any
  source) and its tag. Messages with one source and tag arrive in the order of their
  sends.
- Both arrays must have the same number of elements and the same dtype. Otherwise both
  sides raise `CollectiveMismatchError` and nothing is written. If a `send` of some
  kilobytes has returned before the receive came, this rank's next call with that peer
  raises the error.
- `dst` and `src` are global ranks, `group_dst` and `group_src` ranks of `group`. A rank
  that does not exist raises `ValueError` at once.
- A rank may send to itself: with `isend`, `irecv` and `sendrecv`, and with `send` and
  `recv` as long as these do not have to wait. A `send` to this rank raises `ValueError`
  if it has more than 32 KiB and no posted `irecv` takes it. So does a `recv` from this
  rank of a message that it has not sent yet. Both would wait for themselves.
- `tag` is an int in [0, 2**31), 0 by default. A negative tag raises `RuntimeError`,
  anything else `TypeError`. Messages of different tags need not be received in the
  order of sending.
- With `status=Status()` a receive says which message it got. Then the message may have
  fewer elements than the array; the rest of the array does not change. `tag` may be
  `ANY_TAG`: then the receive takes the oldest message of the source, whatever its tag.
- Arrays may be those that collectives accept. An array to send may be read-only.
- `timeout` limits this call; by default the group's timeout does. When it passes, the
  message is given up, the call raises `CollectiveTimeoutError`, and the group stays
  usable. The group also stays usable after `RankFailedError`, which means that the peer
  died or left.
- Messages and collectives of a group do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from numbers import Integral

from allhands.arrays import Array, library_of
from allhands.backends.call import Call
from allhands.backends.tag import check_tag
from allhands.backends.work import Work
from allhands.groups.arguments import Group, carrier_of, is_outside, member_of, resolve
from allhands.groups.process_group import ProcessGroup
from allhands.ops.status import ANY_TAG, Status

__all__ = [
    "ANY_TAG",
    "PROC_NULL",
    "P2POp",
    "Status",
    "batch_isend_irecv",
    "iprobe",
    "irecv",
    "isend",
    "probe",
    "recv",
    "send",
    "sendrecv",
]

PROC_NULL = -(2**31)
"""No rank, as the `dst` or `src` of `sendrecv`: for ranks at the edge of a grid."""


def send(
    tensor: Array,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None:
    """Send `tensor` to one rank; returns when `tensor` may be changed again.

    A message of up to 32 KiB does not wait for its receive, as long as less than 16 MiB
    of such messages wait at the destination. A larger message waits. Between hosts the
    limit is 256 KiB. Within a host it is lower than 32 KiB in groups of more than 16
    ranks: between a rank and the first dozen of its peers it is 4 KiB with 64 to 180
    ranks, and 1 KiB with 512, between other ranks at least 24 bytes.

    Raises:
        ValueError: this rank is not in the group.

    Example:
        ```python
        if dist.get_rank() == 0:
            dist.send(np.arange(3.0), dst=1)
        else:
            array = np.empty(3)
            dist.recv(array, src=0)
        ```
    """
    member = member_of(group)
    target = member.peer_meant("destination", dst, group_dst)
    member.communicator.send(tensor, target, check_tag(tag), timeout)


def recv(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
    status: Status | None = None,
) -> int:
    """Receive a message into `tensor`; returns the sender's global rank.

    With neither `src` nor `group_src` the call takes the oldest message with this tag
    from any rank. It fills `status` with the properties of the message, see above. On a
    rank outside the group it returns -1 and warns.

    Backend `mpi` compares only the number of bytes; with `status` it only checks that
    they are whole elements. It cannot notice that a message has another dtype, and
    reads its bytes as elements of `tensor`.

    Raises:
        ValueError: `tag` is `ANY_TAG` without a `status`.
        TypeError: `status` is not a `Status`.

    Example:
        ```python
        result = np.empty(3)
        worker = dist.recv(result)  # of whichever rank is done first
        ```
    """
    member = resolve(group)
    source = _source_of(member, src, group_src)
    if status is None:
        sender = member.communicator.recv(tensor, source, check_tag(tag), timeout)
        return member.global_rank(sender)
    _check_status("recv", status)
    call = Call(
        "recv_status", tensor, None, timeout, peer=source, tag=_checked_or_any(tag)
    )
    work = member.communicator.submit(call)
    if work is None:
        return -1
    status._follow(member, work)
    return status.source


def isend(
    tensor: Array,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Start to send `tensor`, which must not change until `Work.wait()` returns.

    Messages that have not been sent when the group is destroyed, or when the program
    ends, are sent then. If this is impossible, it raises an error. On a rank outside
    the group the call returns None and warns.

    Example:
        ```python
        work = dist.isend(array, dst=1)
        ...  # compute
        work.wait()
        ```
    """
    member = resolve(group)
    target = member.peer_meant("destination", dst, group_dst)
    return carrier_of(member).isend(tensor, target, check_tag(tag), timeout)


def irecv(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
    status: Status | None = None,
) -> Work | None:
    """Start to receive into `tensor`, which may be read once `Work.wait()` returns.

    Otherwise the call works like `recv`. After the wait `Work.source_rank()` is the
    sender's rank in the group, and `status` can be read. On a rank outside the group
    the call returns None and warns.

    Raises:
        ValueError: `tag` is `ANY_TAG` without a `status`.
        TypeError: `status` is not a `Status`.

    Example:
        ```python
        work = dist.irecv(array, src=0)
        ...  # compute
        work.wait()
        ```
    """
    member = resolve(group)
    source = _source_of(member, src, group_src)
    if status is None:
        return carrier_of(member).irecv(tensor, source, check_tag(tag), timeout)
    _check_status("irecv", status)
    tag = _checked_or_any(tag)
    call = Call("recv_status", tensor, None, timeout, True, peer=source, tag=tag)
    work = carrier_of(member).submit(call)
    if work is not None:
        status._follow(member, work)
    return work


def probe(
    src: int | None = None,
    group: Group = None,
    tag: int = ANY_TAG,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Status:
    """Wait for a message and tell which one came, without receiving it.

    The call finds the oldest message with this source and tag (by default any) that no
    posted receive matches. A later receive that names the source and tag of this
    message gets it, unless another thread of this rank receives it first.

    Raises:
        ValueError: this rank is not in the group.
        NotImplementedError: the backend has no probe; Gloo has none.

    Example:
        ```python
        status = dist.probe()
        array = np.empty(status.count(float))
        dist.recv(array, status.source, tag=status.tag)
        ```
    """
    status = _look("probe", member_of(group), src, tag, group_src, timeout)
    assert status is not None, "it has waited for a message"
    return status


def iprobe(
    src: int | None = None,
    group: Group = None,
    tag: int = ANY_TAG,
    group_src: int | None = None,
) -> Status | None:
    """Return which message has come, as `probe` does, but without waiting; or None.

    Raises:
        ValueError: this rank is not in the group.
        NotImplementedError: the backend has no probe; Gloo has none.
        RankFailedError: no message has come, and the source died or left.

    Example:
        ```python
        while dist.iprobe(tag=STOP) is None:
            compute()
        ```
    """
    return _look("iprobe", member_of(group), src, tag, group_src, None)


def sendrecv(
    tensor: Array,
    output: Array,
    dst: int | None = None,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    group_src: int | None = None,
    *,
    recv_tag: int | None = None,
    timeout: timedelta | None = None,
) -> int:
    """Send `tensor` and receive into `output` at the same time.

    Unlike `send` followed by `recv`, this cannot deadlock when all ranks do it.
    `recv_tag` is the tag to receive, by default `tag`. The arrays must not overlap.

    With `dst=PROC_NULL` nothing is sent. With `src=PROC_NULL` nothing is received, and
    `output` does not change. `src=None` means any rank, as in `recv`.

    Returns:
        The sender's global rank, or `PROC_NULL`.

    Raises:
        ValueError: this rank is not in the group.

    Example:
        ```python
        left, right = (rank - 1) % size, (rank + 1) % size
        dist.sendrecv(mine, theirs, dst=right, src=left)
        ```
    """
    member = member_of(group)
    is_sent = not (_is_nobody(dst) or _is_nobody(group_dst))
    is_received = not (_is_nobody(src) or _is_nobody(group_src))
    target = member.peer_meant("destination", dst, group_dst) if is_sent else PROC_NULL
    source = _source_of(member, src, group_src) if is_received else PROC_NULL
    tags = check_tag(tag), check_tag(tag if recv_tag is None else recv_tag)
    communicator = member.communicator
    if is_sent and is_received:
        sender = communicator.sendrecv(
            tensor, target, tags[0], output, source, tags[1], timeout
        )
        return member.global_rank(sender)
    for array in tensor, output:
        library_of(array)  # raises if it is not an array
    if is_received:
        return member.global_rank(communicator.recv(output, source, tags[1], timeout))
    if is_sent:
        communicator.send(tensor, target, tags[0], timeout)
    return PROC_NULL


def _is_nobody(rank: int | None) -> bool:
    if rank is None or type(rank) is int:
        return rank == PROC_NULL  # the next line takes as long as a small message
    return isinstance(rank, Integral) and rank == PROC_NULL


class P2POp:
    """An `isend` or `irecv` to be started by `batch_isend_irecv`.

    `op` is one of these two functions; the other parameters are its arguments. `peer`
    is a global rank, `group_peer` a rank of `group`. A rank outside the group may make
    one, too.

    Raises:
        ValueError: `op` is neither function; there is no such peer.
        TypeError: `tensor` is not an array.

    Example:
        ```python
        op = dist.P2POp(dist.isend, array, peer=1)
        (work,) = dist.batch_isend_irecv([op])
        work.wait()
        ```
    """

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Array,
        peer: int | None = None,
        group: Group = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                f"P2POp: Invalid ``op``. Expected ``op`` to be of type "
                f"``allhands.isend`` or ``allhands.irecv``, got {op!r}."
            )
        library_of(tensor)
        member = resolve(group)
        self.op = op
        self.tensor = tensor
        self.group = member
        self.tag = check_tag(tag)
        role = "destination" if op is isend else "source"
        self.group_peer = member.peer_meant(role, peer, group_peer)
        self.peer = member.global_rank(self.group_peer)

    def start(self, timeout: timedelta | None) -> Work:
        """Start the operation with this time limit."""
        communicator = self.group.communicator
        run = communicator.isend if self.op is isend else communicator.irecv
        work = run(self.tensor, self.group_peer, self.tag, timeout)
        assert work is not None, "a member starts it"
        return work

    def __repr__(self) -> str:
        ends = self.group.rank(), self.group_peer
        source, destination = ends if self.op is isend else reversed(ends)
        tensor = self.tensor
        what = (
            f"{tensor.shape}, {tensor.dtype}"
            if hasattr(tensor, "dtype")
            else f"{type(tensor).__name__} of length {len(tensor)}"
        )
        return (
            f"P2POp({self.op.__name__} pg={self.group.group_name}, "
            f"group_src={source}, group_dst={destination},  {what})"
        )


def batch_isend_irecv(
    p2p_op_list: list[P2POp], *, timeout: timedelta | None = None
) -> list[Work]:
    """Start all operations of the list; return one `Work` for each, in the same order.

    A rank without messages may pass an empty list, and gets an empty list. So does a
    rank outside the group, with a warning.

    Raises:
        ValueError: the argument is not a list of `P2POp`, or they belong to different
            groups.

    Example:
        ```python
        ops = [
            dist.P2POp(dist.isend, mine, right),
            dist.P2POp(dist.irecv, theirs, left),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        ```
    """
    if not isinstance(p2p_op_list, list) or not all(
        isinstance(op, P2POp) for op in p2p_op_list
    ):
        raise ValueError(
            f"batch_isend_irecv: Invalid ``p2p_op_list``. Each op is expected to be of "
            f"type ``allhands.P2POp``, in a list; got {p2p_op_list!r}"
        )
    if not p2p_op_list:
        return []
    if any(op.group is not p2p_op_list[0].group for op in p2p_op_list):
        raise ValueError("batch_isend_irecv: All ops need to use the same group.")
    if is_outside(p2p_op_list[0].group, "batch_isend_irecv"):
        return []
    member = member_of(p2p_op_list[0].group)  # raises if the group was destroyed
    with member.communicator.together():
        return [op.start(timeout) for op in p2p_op_list]


def _look(
    op: str,
    member: ProcessGroup,
    src: int | None,
    tag: int,
    group_src: int | None,
    timeout: timedelta | None,
) -> Status | None:
    source = _source_of(member, src, group_src)
    call = Call(op, timeout=timeout, peer=source, tag=_checked_or_any(tag))
    work = member.communicator.submit(call)
    if work is None:
        return None
    status = Status()
    status._follow(member, work)
    return status


def _check_status(call: str, status: object) -> None:
    """Refuse an object that cannot be filled, before a message is taken for it."""
    if not isinstance(status, Status):
        raise TypeError(f"{call}: status is no Status, got {status!r}; pass Status()")


def _checked_or_any(tag: int) -> int:
    """Return `check_tag(tag)`, but accept `ANY_TAG` too."""
    return tag if tag == ANY_TAG else check_tag(tag)


def _source_of(
    member: ProcessGroup, src: int | None, group_src: int | None
) -> int | None:
    """Return the group rank to receive from; None for any."""
    if src is None and group_src is None:
        return None
    return member.peer_meant("source", src, group_src)
