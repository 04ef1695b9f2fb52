"""The ranks that MPI knows to have failed.

An MPI with ULFM (User-Level Failure Mitigation) outlives the death of a rank and says
which rank died. Open MPI 5 has it under `mpiexec --with-ft ulfm`. Other libraries end
the job, or have an error without ranks.
"""

from __future__ import annotations

from typing import Any

__all__ = ["failed_ranks"]

_CLASSES = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")


def failed_ranks(mpi: Any, comm: Any, error: Any) -> list[int]:
    """Return the ranks of `comm` that have failed, if `error` is MPI's notice of it."""
    # Without ULFM, mpi4py gives these names to the class of unknown errors.
    classes = {getattr(mpi, name, mpi.ERR_UNKNOWN) for name in _CLASSES}
    if error.Get_error_class() not in classes - {mpi.ERR_UNKNOWN}:
        return []
    ranks = comm.Get_failed().Translate_ranks(None, comm.Get_group())
    return sorted(ranks)
