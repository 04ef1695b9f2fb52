"""record_comm: names a region of a program in errors and profiles."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from allhands.errors import DistError

__all__ = ["record_comm"]


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Name the communication of a `with` block, or of a decorated function.

    If torch is loaded, its profiler shows a range with this name around the block. An
    error between ranks that leaves the block has the name as a note (Python 3.11 or
    later). An error that `Work.wait()` raises after the block does not.

    Example:
        ```python
        with dist.record_comm("gradients of layer 1"):
            dist.all_reduce(gradient)
        ```
    """
    with ExitStack() as stack:
        profiler: Any = sys.modules.get("torch.profiler")
        if profiler is not None:
            stack.enter_context(profiler.record_function(name))
        try:
            yield
        except DistError as error:
            if sys.version_info >= (3, 11):
                error.add_note(f"in record_comm({name!r})")
            raise
