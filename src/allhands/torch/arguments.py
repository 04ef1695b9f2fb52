"""Converts the arguments of torch's methods to those of a communicator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch._C import _distributed_c10d as c10d

from allhands.options import RedOpType, ReduceOp

__all__ = ["limit_of", "reduce_op_of"]

_NONE = timedelta(0)
_SUM = c10d.ReduceOp.SUM
_OPS = {getattr(c10d.ReduceOp, op.name): op for op in RedOpType}


def reduce_op_of(opts: Any) -> RedOpType | ReduceOp:
    """Return the reduce operation of an options object, or `opts` itself if it is one.

    None means a sum, torch's default.
    """
    chosen = getattr(opts, "reduceOp", opts)
    if chosen is None or chosen == _SUM:  # the usual case
        return RedOpType.SUM
    kind = chosen if isinstance(chosen, c10d.ReduceOp.RedOpType) else chosen.op
    op = _OPS[kind]
    if op is RedOpType.PREMUL_SUM:
        return op(chosen.__getstate__()[1])
    return op


def limit_of(opts: Any, timeout: timedelta | None = None) -> timedelta | None:
    """Return the time limit; None means the group's, which torch writes as -1."""
    limit = getattr(opts, "timeout", timeout)
    return None if limit is None or limit < _NONE else limit
