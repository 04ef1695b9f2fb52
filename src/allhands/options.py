"""The options of the public API: reduce operations, call options, time limits.

`ReduceOp` is two things at once, as in torch.distributed: a namespace of plain
operations (`ReduceOp.SUM`, a `RedOpType`) and a class whose objects carry an operation
with its factor (`ReduceOp.PREMUL_SUM(0.5)`). Every plain operation counts as a
`ReduceOp`, equals the objects made from it and has their hash. Its numbers are those
of the native core. Reduce operations are immutable, so any thread may use them.
"""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Any, TypeAlias

__all__ = [
    "AllToAllOptions",
    "AllgatherOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "BarrierOptions",
    "BroadcastOptions",
    "CallOptions",
    "DebugLevel",
    "GatherOptions",
    "NativeOptions",
    "NcclOptions",
    "RedOpType",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
    "as_timedelta",
    "check_timedelta",
    "default_pg_timeout",
    "reduce_op",
    "supports_complex",
    "to_seconds",
]

default_pg_timeout = timedelta(minutes=30)
"""The time limit of a group's operations if the caller gives none."""


class DebugLevel(IntEnum):
    """How much a program logs: OFF, INFO, DETAIL; see `set_debug_level`."""

    name: str
    value: int

    OFF = 0
    INFO = 1
    DETAIL = 2

    def __str__(self) -> str:
        return f"DebugLevel.{self.name}"


def as_timedelta(timeout: timedelta | float, operation: str = "") -> timedelta:
    """Return `timeout` as a timedelta; a float is seconds, as in torch's classes.

    Errors name `operation`.

    Raises:
        TypeError: `timeout` is neither a timedelta nor a float.
        ValueError: `timeout` is negative, NaN or too large.
    """
    if isinstance(timeout, float):
        timeout = _timedelta_of(timeout)
    check_timedelta(timeout, operation)
    if timeout < _ZERO:
        seconds = timeout.total_seconds()
        subject = f"{operation}: " if operation else ""
        raise ValueError(f"{subject}timeout must not be negative, got {seconds} s")
    return timeout


def to_seconds(timeout: timedelta | float) -> float:
    """Return the time limit `timeout` in seconds; see `as_timedelta`."""
    return as_timedelta(timeout).total_seconds()


def check_timedelta(timeout: timedelta, operation: str = "") -> None:
    """Check that `timeout` is a timedelta; the error names `operation`.

    Raises:
        TypeError: `timeout` is not a timedelta.
    """
    if not isinstance(timeout, timedelta):
        is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        remedy = f": pass timedelta(seconds={timeout!r})" if is_number else ""
        subject = f"{operation}: " if operation else ""
        raise TypeError(
            f"{subject}Expected timeout argument to be of type "
            f"datetime.timedelta, got {timeout!r}{remedy}"
        )


_ZERO = timedelta(0)


def _timedelta_of(seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"timeout must be a time limit, got {seconds} s") from error


class _CountsPlainOps(type):
    """Makes `isinstance(ReduceOp.SUM, ReduceOp)` true."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RedOpType) or super().__instancecheck__(instance)


class ReduceOp(metaclass=_CountsPlainOps):
    """How the values of several ranks become one, element by element.

    - SUM, AVG, PRODUCT, MIN, MAX work on numbers, but MIN and MAX not on complex ones.
    - BAND, BOR, BXOR work on the bits of integers, and on bool.
    - PREMUL_SUM(factor) multiplies each rank's array by its factor, then sums. The
      factor may differ from rank to rank. For arrays of integers the factor is an
      integer in [-2**63, 2**64), kept exactly.

    Example:
        ```python
        dist.all_reduce(array, op=dist.ReduceOp.MAX)
        dist.all_reduce(array, op=dist.ReduceOp.PREMUL_SUM(1 / num_samples))
        ```
    """

    class RedOpType(IntEnum):
        """The kinds of reduction."""

        SUM = 0
        AVG = 1
        PRODUCT = 2
        MIN = 3
        MAX = 4
        BAND = 5
        BOR = 6
        BXOR = 7
        PREMUL_SUM = 8

        def __call__(self, factor: Any) -> ReduceOp:
            """`PREMUL_SUM(factor)`: multiply by `factor`, then sum."""
            if self is not RedOpType.PREMUL_SUM:
                raise RuntimeError(
                    f"Only PREMUL_SUM supports calling with a factor, got {self}"
                )
            return ReduceOp(self, _number(factor))

        def __bool__(self) -> bool:
            return True

        def __str__(self) -> str:
            return f"RedOpType.{self.name}"

        def __repr__(self) -> str:
            return f"<RedOpType.{self.name}: {self.value}>"

    SUM = RedOpType.SUM
    AVG = RedOpType.AVG
    PRODUCT = RedOpType.PRODUCT
    MIN = RedOpType.MIN
    MAX = RedOpType.MAX
    BAND = RedOpType.BAND
    BOR = RedOpType.BOR
    BXOR = RedOpType.BXOR
    PREMUL_SUM = RedOpType.PREMUL_SUM

    __slots__ = ("_factor", "op")

    def __init__(self, op: RedOpType, _factor: float | None = None) -> None:
        if type(op) is not RedOpType:
            raise TypeError(f"op must be a ReduceOp.RedOpType, got {op!r}")
        self.op = op
        self._factor = _factor

    @property
    def factor(self) -> float:
        """The number that PREMUL_SUM multiplies by.

        Raises:
            RuntimeError: the operation has no factor.
        """
        if self._factor is None:
            raise RuntimeError(
                f"Only PREMUL_SUM supports accessing factor, this is {self.op}"
            )
        return self._factor

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RedOpType):
            return self.op is other
        if type(other) is ReduceOp:
            return self.op is other.op and self._factor == other._factor
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        factor = "" if self._factor is None else f"({self._factor})"
        return f"ReduceOp.{self.op.name}{factor}"

    def __reduce__(self) -> tuple[Any, ...]:
        return ReduceOp, (self.op, self._factor)


RedOpType: TypeAlias = ReduceOp.RedOpType


def _number(factor: Any) -> float:
    """Return an int if `factor` is an integer of any library, else a float."""
    try:
        integer = operator.index(factor)
    except TypeError:
        return float(factor)
    float(integer)  # raises OverflowError here rather than in the operation
    return integer


def supports_complex(reduceOp: RedOpType | ReduceOp) -> bool:
    """Whether the operation can reduce complex numbers.

    SUM, AVG, PRODUCT and PREMUL_SUM can. The others need an order of the numbers, or
    their bits.

    Example:
        ```python
        dist.supports_complex(dist.ReduceOp.SUM)  # True
        dist.supports_complex(dist.ReduceOp.MAX)  # False
        ```
    """
    kind = reduceOp.op if type(reduceOp) is ReduceOp else reduceOp
    able = (RedOpType.SUM, RedOpType.AVG, RedOpType.PRODUCT, RedOpType.PREMUL_SUM)
    return kind in able


class _DeprecatedReduceOp:
    """torch.distributed's older spelling of `ReduceOp`; every use warns."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") and name != "__members__":
            return super().__getattribute__(name)
        warnings.warn(
            "`allhands.reduce_op` is deprecated, please use `allhands.ReduceOp` "
            "instead",
            FutureWarning,
            stacklevel=2,
        )
        return getattr(RedOpType, name)


reduce_op = _DeprecatedReduceOp()
"""torch.distributed's older spelling of `ReduceOp`; every use warns."""


@dataclass(frozen=True)
class NativeOptions:
    """What the native engine can be told of a group: `pg_options` of what makes one.

    A group made from another group inherits the options of that group unless it gets
    its own: `new_subgroups`, `split_group`, `shrink_group` and `merge_remote_group`
    make such groups. Groups of `new_group` inherit the options of the world.

    Args:
        reduce_order: the order in which a group on several hosts reduces large arrays.
            "rank": in rank order, in one reduction, so that results have the same bits
            wherever the ranks are, as on one host. "any": in the fastest order; every
            rank still gets the same bits. None: the group inherits the order; the world
            takes that of `ALLHANDS_REDUCE_ORDER`, or else "any". All ranks must pass
            the same order: otherwise the first reduction raises
            `CollectiveMismatchError` on every rank.

    Raises:
        ValueError: `reduce_order` is not None, "any" or "rank".

    Example:
        ```python
        options = dist.NativeOptions(reduce_order="rank")
        dist.init_process_group(pg_options=options)
        ```
    """

    reduce_order: str | None = None

    def __post_init__(self) -> None:
        if self.reduce_order not in (None, "any", "rank"):
            raise ValueError(
                f"reduce_order must be 'any' or 'rank', got {self.reduce_order!r}"
            )


@dataclass(frozen=True)
class NcclOptions:
    """What NCCL can be told of a group: `pg_options` of what makes one.

    None leaves a choice to NCCL and its environment variables (`NCCL_*`).

    Args:
        is_high_priority_stream: asynchronous operations run in a stream of the highest
            priority, and so may overtake other work of the GPU. None: as
            `TORCH_NCCL_HIGH_PRIORITY` says, by default False.
        cga_cluster_size: blocks per cooperative group of NCCL's kernels, from 0 to 8.
        min_ctas: the least number of blocks per kernel.
        max_ctas: the largest number of blocks per kernel.
        net_name: the network module, such as "IB" or "Socket".
        traffic_class: the traffic class of network operations.
        split_share: a group that `split_group` makes uses the resources of its parent,
            so operations of both must not be under way at the same time.
        blocking_wait: `wait()` returns when the GPU has done the operation, and raises
            its error. None: as `TORCH_NCCL_BLOCKING_WAIT` says, by default False.

    Example:
        ```python
        options = dist.NcclOptions(max_ctas=8)
        group = dist.new_group(backend="nccl", pg_options=options)
        ```
    """

    is_high_priority_stream: bool | None = None
    cga_cluster_size: int | None = None
    min_ctas: int | None = None
    max_ctas: int | None = None
    net_name: str | None = None
    traffic_class: int | None = None
    split_share: bool = False
    blocking_wait: bool | None = None


@dataclass(slots=True)
class CallOptions:
    """What the methods of a `ProcessGroup` take as `opts`, in torch's spelling.

    A negative timedelta as `timeout` means the timeout of the group. `asyncOp` has no
    effect: these methods always return a `Work`. It exists for programs that set it.
    `reduceOp` is a `ReduceOp`, also if it was set to a `RedOpType`.

    Raises:
        TypeError: `timeout` is set to something else than a timedelta or a float, or
            `reduceOp` to something else than a reduce operation.
        ValueError: `timeout` is set to a float that is negative, NaN or too large.
    """

    timeout: timedelta = timedelta(milliseconds=-1)
    asyncOp: bool = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "timeout" and not isinstance(value, timedelta):
            value = as_timedelta(value)
        elif name == "reduceOp" and type(value) is not ReduceOp:
            value = ReduceOp(value)
        object.__setattr__(self, name, value)


@dataclass(slots=True)
class AllgatherOptions(CallOptions):
    """Options of `ProcessGroup.allgather` and its relatives."""


@dataclass(slots=True)
class AllToAllOptions(CallOptions):
    """Options of `ProcessGroup.alltoall` and `alltoall_base`."""


@dataclass(slots=True)
class AllreduceOptions(CallOptions):
    """Options of `ProcessGroup.allreduce`."""

    reduceOp: RedOpType | ReduceOp = ReduceOp.SUM


@dataclass(slots=True)
class AllreduceCoalescedOptions(AllreduceOptions):
    """Options of `ProcessGroup.allreduce_coalesced`."""


@dataclass(slots=True)
class ReduceScatterOptions(AllreduceOptions):
    """Options of `ProcessGroup.reduce_scatter` and its relatives."""


@dataclass(slots=True)
class GatherOptions(CallOptions):
    """Options of `ProcessGroup.gather`; `rootRank` is a rank of the group."""

    rootRank: int = 0


@dataclass(slots=True)
class ScatterOptions(GatherOptions):
    """Options of `ProcessGroup.scatter`; `rootRank` is a rank of the group."""


@dataclass(slots=True)
class BroadcastOptions(GatherOptions):
    """Options of `ProcessGroup.broadcast`; `rootTensor` must be 0."""

    rootTensor: int = 0


@dataclass(slots=True)
class ReduceOptions(BroadcastOptions):
    """Options of `ProcessGroup.reduce`; `rootRank` is a rank of the group."""

    reduceOp: RedOpType | ReduceOp = ReduceOp.SUM


@dataclass(slots=True)
class BarrierOptions(CallOptions):
    """Options of `ProcessGroup.barrier`; devices do not matter to CPU groups."""

    device: Any = None
    device_ids: list[int] = field(default_factory=list)
