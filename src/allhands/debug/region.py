"""record_comm: a name for what a program is doing, where people look for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from allhands.errors import DistError

__all__ = ["record_comm"]


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Call the communication of a `with` block, or of a decorated function, `name`.

    Where torch is loaded, its profiler shows a range of that name around the block. An
    error between ranks that leaves the block carries the name as a note (Python 3.11 or
    later); one that `Work.wait()` raises after the block does not.

    Example:
        ```python
        with dist.record_comm("gradients of layer 1"):
            dist.all_reduce(gradient)
        ```
    """
    with ExitStack() as stack:
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            stack.enter_context(torch.profiler.record_function(name))
        try:
            yield
        except DistError as error:
            if sys.version_info >= (3, 11):
                error.add_note(f"in record_comm({name!r})")
            raise
