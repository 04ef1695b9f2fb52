"""Queries which backends can be used here, with the names of torch.distributed."""

from __future__ import annotations

from allhands.backends.config import BackendConfig
from allhands.backends.lookup import why_not
from allhands.backends.registry import Backend

__all__ = [
    "is_backend_available",
    "is_gloo_available",
    "is_mpi_available",
    "is_nccl_available",
    "is_ucc_available",
    "is_xccl_available",
]


def is_backend_available(backend: str) -> bool:
    """Return whether `init_process_group` could use `backend`, a name or pairs.

    If an installed package offers the backend, the call imports it.

    Example:
        ```python
        dist.is_backend_available("native")  # True
        dist.is_backend_available("cpu:native,cuda:nccl")  # False
        ```
    """
    try:
        named = BackendConfig(backend).get_device_backend_map()
    except (AssertionError, RuntimeError, ValueError):
        return False
    return not any(map(why_not, named.values()))


def is_gloo_available() -> bool:
    """Return whether `backend="gloo"` works: by torch or by the native engine."""
    return is_backend_available(Backend.GLOO)


def is_mpi_available() -> bool:
    """Return whether `backend="mpi"` works when mpiexec starts the ranks.

    It needs mpi4py and an MPI library. If this process has not loaded the library,
    another process tries to load it.
    """
    return is_backend_available(Backend.MPI)


def is_nccl_available() -> bool:
    """Return whether `backend="nccl"` works."""
    return is_backend_available(Backend.NCCL)


def is_ucc_available() -> bool:
    """Return whether `backend="ucc"` works."""
    return is_backend_available(Backend.UCC)


def is_xccl_available() -> bool:
    """Return whether `backend="xccl"` works, for arrays in CPU memory.

    It needs Intel's oneCCL. If the loader finds oneCCL, another process tries it.
    """
    return is_backend_available(Backend.XCCL)
