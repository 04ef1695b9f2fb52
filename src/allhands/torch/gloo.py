"""The native engine in place of Gloo, for programs that name "gloo".

torch makes a group of Gloo by calling one class, which it looks up in its module each
time. This module puts another class there. Everything else that the program sees of the
group stays the same: its backend is called gloo.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed

from allhands import settings
from allhands.torch.native_group import AllhandsProcessGroup
from allhands.torch.uncompiled import uncompiled

__all__ = ["GlooProcessGroup", "replace_gloo"]


@uncompiled
class GlooProcessGroup(AllhandsProcessGroup):
    """A group that torch takes for a Gloo group; see `AllhandsProcessGroup`.

    torch's Python code still calls its backend gloo. torch's C++ code, such as DDP's
    logger, would look for Gloo itself behind this name, so it gets the engine's name.
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

    def _like_this(
        self, store: Any, rank: int, size: int, timeout: timedelta
    ) -> AllhandsProcessGroup:
        return GlooProcessGroup(store, rank, size, timeout)


def replace_gloo() -> None:
    """Let later groups of the backend gloo run on the native engine.

    The call does nothing unless ALLHANDS_REPLACE_GLOO is set.

    Raises:
        RuntimeError: there is a GPU. If another backend of a group serves it, the part
            for the CPU cannot be replaced alone.
    """
    if not settings.replace_gloo.get():
        return
    if torch.cuda.is_available():
        raise RuntimeError(
            f"{settings.replace_gloo.name}: torch finds a GPU here; Gloo can be "
            f"replaced only in programs that have none"
        )
    torch.distributed.distributed_c10d.ProcessGroupGloo = GlooProcessGroup
