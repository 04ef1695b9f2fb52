"""What torch.compile leaves as it is."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

from torch._C._dynamo import eval_frame

__all__ = ["uncompiled"]

_SKIP = eval_frame._FrameAction.SKIP
_AS_IT_IS = eval_frame._FrameExecStrategy(_SKIP, _SKIP)  # and what it calls

_T = TypeVar("_T")


def uncompiled(cls: type[_T]) -> type[_T]:
    """Have torch.compile run the class's methods, and what they call, as they are.

    It would trace them where a compiled program calls them, and fail at the native
    engine. A mark on their code costs calls nothing, unlike `torch.compiler.disable`,
    which wraps them.
    """
    for member in vars(cls).values():
        method = member.fget if isinstance(member, property) else member
        if isinstance(method, FunctionType):
            eval_frame.set_code_exec_strategy(method.__code__, _AS_IT_IS)
    return cls
