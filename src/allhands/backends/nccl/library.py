"""NCCL, by NVIDIA's bindings for Python (nccl4py), and what it needs of CUDA."""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any

from allhands.rendezvous.trial import told_by

__all__ = ["load", "nccl_version", "why_no_nccl", "why_not_found"]

_DRIVER = "libcuda.so.1"
_NAME = "NCCL "
_TRY = """
try:
    from cuda.core import Device
    from nccl.bindings import nccl
    number = len(Device.get_all_devices())
    version = nccl.get_version()
    if number:
        major, rest = divmod(version, 10000)
        sys.stdout.write(f"NCCL {major}.{rest // 100}.{rest % 100}, {number} GPU(s)")
    else:
        sys.stdout.write("CUDA's driver finds no GPU")
except Exception as error:
    sys.stdout.write(f"{type(error).__name__}: {error}")
"""
_REMEDY = 'backend="native" copies arrays on GPUs through the host'


@cache
def load() -> Any:
    """Load the bindings, and with them NCCL, into this process.

    Raises:
        ImportError: they are not installed.
    """
    return importlib.import_module("nccl.bindings.nccl")


def why_not_found() -> str:
    """Return why the bindings or CUDA's driver are missing; empty if both are here.

    The call loads neither NCCL nor CUDA.
    """
    from allhands.backends.nccl.found import HAS_BINDINGS  # here: it looks for them

    if not HAS_BINDINGS:
        return (
            f"NVIDIA's bindings of NCCL are not installed; pip install "
            f"'nccl4py[cu13]', or [cu12] for CUDA 12. {_REMEDY}"
        )
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return f"there is no CUDA driver ({_DRIVER}) here. {_REMEDY}"
    return ""


def why_no_nccl() -> str:
    """Return why NCCL cannot be used here, and what to do; empty if it can.

    If nothing is obviously missing, another process tries it, in about a second.
    """
    missing = why_not_found()
    if missing:
        return missing
    told = _tried()
    return "" if told.startswith(_NAME) else f"NCCL cannot be used: {told}. {_REMEDY}"


def nccl_version() -> str:
    """Return NCCL's version and the number of GPUs; empty if it is not here."""
    return "" if why_no_nccl() else _tried()


@cache
def _tried() -> str:
    """Return the version of the NCCL that works here, or its problem."""
    return told_by(_TRY)
