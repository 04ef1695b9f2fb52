"""Converts the arguments of torch's methods to those of a communicator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch._C import _distributed_c10d as c10d

from allhands.options import RedOpType, ReduceOp

__all__ = ["limit_of", "reduce_op_of"]

_NONE = timedelta(0)
_SUM = c10d.ReduceOp.SUM
_OUR_SUM = RedOpType.SUM  # found faster than the member of its class
_OPS = {getattr(c10d.ReduceOp, op.name): op for op in RedOpType}


def reduce_op_of(opts: Any, op: Any) -> RedOpType | ReduceOp:
    """Return `op` if given, else that of an options object, or `opts` if it is one.

    None means a sum, torch's default.
    """
    chosen = getattr(opts, "reduceOp", opts) if op is None else op
    if chosen is None or chosen == _SUM:  # the usual case
        return _OUR_SUM
    kind = chosen if isinstance(chosen, c10d.ReduceOp.RedOpType) else chosen.op
    ours = _OPS[kind]
    if ours is RedOpType.PREMUL_SUM:
        return ours(chosen.__getstate__()[1])
    return ours


def limit_of(opts: Any, timeout: timedelta | None = None) -> timedelta | None:
    """Return the time limit; None means the group's, which torch writes as -1."""
    limit = getattr(opts, "timeout", timeout)
    return None if limit is None or limit < _NONE else limit
