"""PlainTensors: the tensors that Gloo can reduce as they are.

The package does not have to pack, multiply or gather these tensors, and Gloo's own
operation gives the result that the package promises.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from allhands.options import RedOpType, ReduceOp

__all__ = ["PlainTensors"]

_OPS = {
    RedOpType.SUM: c10d.ReduceOp.SUM,
    RedOpType.PRODUCT: c10d.ReduceOp.PRODUCT,
    RedOpType.MIN: c10d.ReduceOp.MIN,
    RedOpType.MAX: c10d.ReduceOp.MAX,
}
_DTYPES = {torch.int32, torch.int64, torch.float32, torch.float64}
_CPU = torch.device("cpu")
_MOST_OPTIONS = 100


class PlainTensors:
    """Checks tensors, and keeps Gloo's options of the calls."""

    def __init__(self) -> None:
        self._options: dict[Any, Any] = {}

    def arguments(
        self, tensor: Any, op: RedOpType | ReduceOp, timeout: timedelta
    ) -> tuple[list[torch.Tensor], Any] | None:
        """Return the arguments of Gloo's `allreduce` that reduce `tensor` in place.

        Return None if the tensor is not plain. A plain tensor is contiguous, and its
        storage is as long as the tensor says.
        """
        if type(op) is not RedOpType or type(tensor) is not torch.Tensor:
            return None
        if op not in _OPS or tensor.dtype not in _DTYPES or not _is_plain(tensor):
            return None
        return [tensor], self._options.get((op, timeout)) or self._made(op, timeout)

    def _made(self, op: RedOpType, timeout: timedelta) -> Any:
        options = c10d.AllreduceOptions()
        options.reduceOp, options.timeout = _OPS[op], timeout
        if len(self._options) >= _MOST_OPTIONS:
            self._options.clear()
        self._options[op, timeout] = options
        return options


def _is_plain(tensor: torch.Tensor) -> bool:
    if tensor.device != _CPU or tensor.layout is not torch.strided:
        return False
    if tensor.requires_grad or tensor.is_neg() or not tensor.is_contiguous():
        return False
    end = (tensor.storage_offset() + tensor.numel()) * tensor.itemsize
    return bool(0 < end <= tensor.untyped_storage().nbytes())
