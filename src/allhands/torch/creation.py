"""Makes groups of this backend for torch."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType
from typing import Any

import torch.distributed

from allhands import settings
from allhands.groups.making import hashed
from allhands.options import NativeOptions
from allhands.torch.backend import CAN_BE_MADE, AllhandsBackend
from allhands.torch.identity import DEVICES, NAME
from allhands.torch.native_group import AllhandsProcessGroup

__all__ = ["create"]

_MAKER = "_new_process_group_helper"
_OLDEST, _NEWEST = (2, 13), (2, 15)  # the versions that the tests use
_RECORDER = "TORCH_FR_BUFFER_SIZE"


def create(options: Any, pg_options: Any) -> AllhandsProcessGroup | AllhandsBackend:
    """Make a group; torch calls this on each member of a group that names this backend.

    Returns:
        The group itself, which torch's functions call directly, not through torch's
        C++. Or a backend for a group of torch, if the group also has other backends or
        records its operations for torch's flight recorder.

    Raises:
        TypeError: the `pg_options` are not `NativeOptions`.
        ValueError: the backend is to serve another device than the CPU and GPUs of
            CUDA, or the rank does not exist.
        RuntimeError: there are other backends, and this torch cannot combine them.
    """
    if not isinstance(pg_options, NativeOptions | None):
        raise TypeError(
            f"backend {NAME!r} takes NativeOptions as pg_options, got {pg_options!r}"
        )
    _warn_of_untested_torch()
    backends = _backends_by_device()
    _check(backends)
    rank, size = options.group_rank, options.group_size
    if not 0 <= rank < size:  # torch does not check it, and the others would wait
        raise ValueError(f"rank must be in [0, {size}), got {rank}")
    store = options.store
    if options.global_ranks_in_group:  # its name may occur again in a later world
        members = hashed(options.global_ranks_in_group)
        store = torch.distributed.PrefixStore(members, store)
    group = AllhandsProcessGroup(
        store,
        rank,
        size,
        options.timeout,
        _reduce_order(pg_options),
        options.global_ranks_in_group or range(size),
    )
    is_recorded = CAN_BE_MADE and os.environ.get(_RECORDER, "0") != "0"
    if _has_others(backends) or is_recorded:
        # torch names only its own group around it
        group._set_group_name(options.group_id)
        return AllhandsBackend.for_torch(group)
    return group


def _reduce_order(pg_options: NativeOptions | None) -> str:
    """Return the given order; by default that of torch's default group, if native.

    All members of the default group have the same order. torch does not say from which
    group another one is made.
    """
    if pg_options is not None and pg_options.reduce_order is not None:
        return pg_options.reduce_order
    whole = torch.distributed.group.WORLD
    order: str | None = getattr(whole, "reduce_order", None)
    return order or settings.reduce_order.get()


def _warn_of_untested_torch() -> None:
    major, minor = torch.__version__.split(".")[:2]
    if not _OLDEST <= (int(major), int(minor)) <= _NEWEST:
        warnings.warn(
            f"allhands was tested with torch {_OLDEST[0]}.{_OLDEST[1]} to "
            f"{_NEWEST[0]}.{_NEWEST[1]}, this is torch {torch.__version__}",
            stacklevel=2,
        )


def _check(backends: dict[str, str]) -> None:
    asked = ",".join(f"{device}:{name}" for device, name in backends.items())
    devices = [device for device, name in backends.items() if name == NAME]
    if not set(devices) <= set(DEVICES):
        raise ValueError(
            f"backend {asked!r}: {NAME!r} serves the tensors of devices "
            f"{' and '.join(map(repr, DEVICES))} only"
        )
    if _has_others(backends) and not CAN_BE_MADE:
        raise RuntimeError(
            f"backend {asked!r}: torch {torch.__version__} cannot combine a backend "
            f"that is made in Python with others, torch 2.14 can; alone: {NAME!r}"
        )


def _has_others(backends: dict[str, str]) -> bool:
    return set(backends.values()) != {NAME}


def _backends_by_device() -> dict[str, str]:
    """Return all backends of the group that is being made.

    torch does not pass them to a single backend, so they are read from a local variable
    of torch's function.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _MAKER:
            return dict(frame.f_locals["backend_config"].get_device_backend_map())
        frame = frame.f_back
    return {"cpu": NAME}
