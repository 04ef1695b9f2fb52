"""The options of a group of NCCL: where they come from, and as NCCL takes them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from allhands.options import NcclOptions

__all__ = ["completed", "config_of"]

_BLOCKING_WAIT = "TORCH_NCCL_BLOCKING_WAIT"
_HIGH_PRIORITY = "TORCH_NCCL_HIGH_PRIORITY"


def completed(given: NcclOptions | None) -> NcclOptions:
    """Return options in which torch's variables of the environment count, too."""
    given = given or NcclOptions()
    priority, blocking = given.is_high_priority_stream, given.blocking_wait
    return replace(
        given,
        is_high_priority_stream=_said(_HIGH_PRIORITY) if priority is None else priority,
        blocking_wait=_said(_BLOCKING_WAIT) if blocking is None else blocking,
    )


def config_of(nccl: Any, options: NcclOptions) -> Any:
    """Return NCCL's form of the options, for as long as the communicator lives."""
    config = nccl.Config()
    for name in ("cga_cluster_size", "min_ctas", "max_ctas", "traffic_class"):
        value = getattr(options, name)
        if value is not None:
            setattr(config, name, value)
    if options.net_name is not None:
        config.net_name = options.net_name
    if options.split_share:
        config.split_share = 1
    return config


def _said(variable: str) -> bool:
    return os.environ.get(variable, "0") == "1"
