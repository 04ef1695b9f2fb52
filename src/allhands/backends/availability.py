"""Which backends could be used here: torch.distributed's questions, and its names."""

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
    """Whether `init_process_group` could use `backend`, which may also be pairs.

    One that an installed package offers is imported for the answer.

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
    """Whether `backend="gloo"` works: with torch, or replaced by the native engine."""
    return is_backend_available(Backend.GLOO)


def is_mpi_available() -> bool:
    """Whether `backend="mpi"` works where mpiexec starts the ranks.

    It does with mpi4py and an MPI library, which another process tries to load, unless
    this one has.
    """
    return is_backend_available(Backend.MPI)


def is_nccl_available() -> bool:
    """Whether `backend="nccl"` works."""
    return is_backend_available(Backend.NCCL)


def is_ucc_available() -> bool:
    """Whether `backend="ucc"` works."""
    return is_backend_available(Backend.UCC)


def is_xccl_available() -> bool:
    """Whether `backend="xccl"` works."""
    return is_backend_available(Backend.XCCL)
