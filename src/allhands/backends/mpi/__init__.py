"""Backend `mpi`: an MPI library moves arrays."""

from __future__ import annotations

__all__: list[str] = []
