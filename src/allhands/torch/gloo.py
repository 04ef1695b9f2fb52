"""The native engine in Gloo's place, for programs that say "gloo".

torch makes a group of that name by calling one class, which it looks up in its module
each time; another class stands there then. What the program asks of the group is as
before: its backend is called gloo.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch.distributed

from allhands import settings
from allhands.torch.native_group import AllhandsProcessGroup
from allhands.torch.uncompiled import uncompiled

__all__ = ["GlooProcessGroup", "replace_gloo"]


@uncompiled
class GlooProcessGroup(AllhandsProcessGroup):
    """A group that torch takes for one of Gloo's; see `AllhandsProcessGroup`.

    torch's Python goes on to call its backend gloo. torch's C++, as DDP's logger, would
    look for Gloo itself behind that name, so it is told the engine's.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        enable_reconfigure: bool = False,
    ) -> None:
        if enable_reconfigure:
            raise ValueError(
                f"{settings.replace_gloo.name}: groups to be reconfigured need Gloo"
            )
        super().__init__(store, rank, size, timeout, settings.reduce_order.get())
        self.options = SimpleNamespace()
        """Where torch notes what the group is."""

    def _like_this(
        self, store: Any, rank: int, size: int, timeout: timedelta
    ) -> AllhandsProcessGroup:
        return GlooProcessGroup(store, rank, size, timeout)


def replace_gloo() -> None:
    """Have this process's later groups of the backend gloo run on the native engine.

    Nothing happens unless ALLHANDS_REPLACE_GLOO says so.

    Raises:
        RuntimeError: there is a GPU: of a group that serves it by another backend the
            CPU's part could not be replaced alone.
    """
    if not settings.replace_gloo.get():
        return
    if torch.cuda.is_available():
        raise RuntimeError(
            f"{settings.replace_gloo.name}: torch finds a GPU here; Gloo can be "
            f"replaced only in programs that have none"
        )
    torch.distributed.distributed_c10d.ProcessGroupGloo = GlooProcessGroup
