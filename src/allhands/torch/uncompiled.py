"""Marks classes that torch.compile must not trace."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

from torch._C._dynamo import eval_frame

__all__ = ["uncompiled"]

_SKIP = eval_frame._FrameAction.SKIP
# also for all code that it calls
_AS_IT_IS = eval_frame._FrameExecStrategy(_SKIP, _SKIP)

_T = TypeVar("_T")


def uncompiled(cls: type[_T]) -> type[_T]:
    """Let torch.compile run the class's methods, and what they call, without tracing.

    torch.compile would trace the methods in a compiled program, and fail at the native
    engine. A mark on their code costs a call nothing. `torch.compiler.disable` would
    wrap the methods.
    """
    for member in vars(cls).values():
        method = member.fget if isinstance(member, property) else member
        if isinstance(method, FunctionType):
            eval_frame.set_code_exec_strategy(method.__code__, _AS_IT_IS)
    return cls
