"""oneCCL's library for arrays in CPU memory, called by its C functions.

The loader must find the library: oneCCL loads parts of itself by name. oneCCL reads its
settings in the environment once. Its own defaults are for GPUs and for Intel MPI, so
this module sets those that the program has not set.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

from allhands.rendezvous.trial import told_by

__all__ = [
    *("OneCclError", "OneCclLibrary", "load", "why_no_xccl", "why_not_found"),
    "xccl_version",
]

_FILE = "libccl.so.2"
_SETTINGS = {
    "CCL_PLUGIN": "ONECCL_LEGACY_CPU",
    "CCL_ATL_TRANSPORT": "ofi",
    "CCL_LOG_LEVEL": "error",
}
_INSTALL = 'backend="native" serves CPU arrays without it'
_ID_BYTES = 4096

_TRY = """
from allhands.backends.xccl.library import OneCclError, load
try:
    library = load()
    library.destroy(library.join(1, library.unique_id(), 0))
    sys.stdout.write(library.version())
except (OneCclError, OSError, AttributeError) as error:
    sys.stdout.write(str(error))
"""
_NAME = "oneCCL "

_Id = ctypes.c_char * _ID_BYTES


class _UniqueId(ctypes.Structure):
    _fields_ = (("data", _Id),)


class OneCclError(Exception):
    """A function of oneCCL failed."""


class OneCclLibrary:
    """The functions of oneCCL, which raise `OneCclError`; any thread may call them."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self._functions = functions
        for name in ("onecclGetErrorString", "onecclGetLastError"):
            getattr(functions, name).restype = ctypes.c_char_p

    def version(self) -> str:
        """Return its name and version: "oneCCL 2022.1.0"."""
        found = ctypes.c_int()
        self.call("onecclGetVersion", ctypes.byref(found))
        rest, patch = divmod(found.value, 100)
        return f"{_NAME}{rest // 100}.{rest % 100}.{patch}"

    def unique_id(self) -> bytes:
        """Return the id of a new group, for all members."""
        found = _UniqueId()
        self.call("onecclGetUniqueId", ctypes.byref(found))
        return bytes(found)

    def join(self, size: int, unique_id: bytes, rank: int) -> ctypes.c_void_p:
        """Return the communicator of a group; waits for all members, without limit."""
        made = ctypes.c_void_p()
        given = _UniqueId.from_buffer_copy(unique_id)
        self.call(
            "onecclCommInitRank",
            *(ctypes.byref(made), ctypes.c_size_t(size), given, ctypes.c_int(rank)),
        )
        return made

    def destroy(self, communicator: ctypes.c_void_p) -> None:
        """Give a communicator back, none of whose operations is under way."""
        self.call("onecclCommDestroy", communicator)

    def call(self, name: str, *arguments: Any) -> None:
        """Call the function `name`, and wait for its end."""
        code = getattr(self._functions, name)(*arguments)
        if code:
            kind = self._functions.onecclGetErrorString(code)
            told = self._functions.onecclGetLastError(None)
            texts = [text.decode(errors="replace") for text in (kind, told) if text]
            raise OneCclError(f"{name}: {': '.join(texts)} (code {code})")


@cache
def load() -> OneCclLibrary:
    """Load oneCCL into this process.

    Raises:
        OSError: the loader does not find it.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    return OneCclLibrary(ctypes.CDLL(_FILE))


def why_no_xccl() -> str:
    """Return why oneCCL cannot serve CPU arrays, and what to do; empty if it can.

    If the loader finds oneCCL, another process tries it, in about a second.
    """
    missing = why_not_found()
    if missing:
        return missing
    told = _tried()
    if told.startswith(_NAME):
        return ""
    return f"{_FILE} of oneCCL is here, but: {told}. {_INSTALL}"


def xccl_version() -> str:
    """Return the name and version of the oneCCL that works here; empty if none does."""
    return "" if why_no_xccl() else _tried()


@cache
def _tried() -> str:
    """Return the version of the oneCCL that the loader finds, or its problem."""
    *_, last = ["", *told_by(_TRY).splitlines()]  # the others are of oneCCL itself
    return last


def why_not_found() -> str:
    """Return why the loader does not find oneCCL; empty if it does."""
    try:
        ctypes.CDLL(_FILE)
        return ""
    except OSError as error:
        folder = os.path.join(sys.prefix, "lib")
        if os.path.exists(os.path.join(folder, _FILE)):
            return f"the loader does not look for oneCCL in {folder}; {_start(folder)}"
        return (
            f"oneCCL is not found ({error}); pip install oneccl impi-rt, and "
            f"{_start(folder)}"
        )


def _start(folder: str) -> str:
    return f"start the program with LD_LIBRARY_PATH={folder}. {_INSTALL}"
