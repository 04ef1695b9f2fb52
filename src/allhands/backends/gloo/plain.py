"""PlainAllReduce: the all-reduce of arrays that Gloo can reduce as they are.

The package does not have to pack, multiply or gather these arrays, and Gloo's own
operation gives the result that the package promises.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch.distributed import distributed_c10d as c10d

from allhands._C import DType, usual_dtype
from allhands.backends.gloo.work import GlooRequest
from allhands.options import RedOpType, ReduceOp

__all__ = ["PlainAllReduce"]

_OPS = {
    RedOpType.SUM: c10d.ReduceOp.SUM,
    RedOpType.PRODUCT: c10d.ReduceOp.PRODUCT,
    RedOpType.MIN: c10d.ReduceOp.MIN,
    RedOpType.MAX: c10d.ReduceOp.MAX,
}
_DTYPES = {DType.Int32, DType.Int64, DType.Float32, DType.Float64}
_FIRST_TESTS = 100
"""How often the operation is tested for its end, in some 25 us, before a wait."""


class PlainAllReduce:
    """Reduces in one group of torch's; see `PolledRows`.

    Args:
        group: the group of Gloo.
        timeout: Gloo's own limit of each operation.
    """

    def __init__(self, group: Any, timeout: timedelta) -> None:
        self._begin = group.allreduce
        self._options: dict[Any, Any] = {}
        for op, its_op in _OPS.items():
            options = self._options[op] = c10d.AllreduceOptions()
            options.reduceOp, options.timeout = its_op, timeout

    def __call__(self, array: Any, op: RedOpType | ReduceOp) -> Any:
        """Reduce in place; see `PolledRows`."""
        options = self._options.get(op) if type(op) is RedOpType else None
        if options is None or usual_dtype(array) not in _DTYPES:
            return NotImplemented
        is_array = type(array) is np.ndarray
        tensor = torch.from_numpy(array) if is_array else array
        if tensor.requires_grad or not tensor.numel():
            return NotImplemented
        request = GlooRequest(self._begin([tensor], options))
        return None if request.ends_soon(_FIRST_TESTS) else request
