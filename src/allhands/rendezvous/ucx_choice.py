"""Chooses whether large messages between hosts go by UCX.

UCX comes from the system or else from a wheel (`libucx-cu12`), which knows TCP and
shared memory, but neither InfiniBand nor RoCE.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from allhands import _C, settings
from allhands.errors import DistBackendError

__all__ = ["choose_ucx", "ucx_version"]

_SYSTEM_LIBRARY = "libucp.so.0"
_WHEELS = ("libucx-cu13", "libucx-cu12")
_VERBS_PORTS = "/sys/class/infiniband"


def choose_ucx() -> str:
    """Return whether bodies go by UCX: "no", "offered" to peers, or "needed".

    Raises:
        ValueError: the setting is not valid, or encryption is asked for too.
        DistBackendError: the setting asks for UCX, and there is none.
    """
    wish = settings.transport.get()
    if wish == "ucx" and settings.tls.get():
        raise ValueError(
            f"{settings.transport.name}=ucx encrypts nothing, and "
            f"{settings.tls.name}=1 asks for encryption: unset one of them"
        )
    if wish == "ucx":
        ucx_version()
        return "needed"
    if wish == "tcp" or settings.tls.get() or not _has_verbs():
        return "no"
    try:
        _C.load_ucx(_SYSTEM_LIBRARY)
    except DistBackendError:
        return "no"
    return "offered"


def ucx_version() -> str:
    """Load UCX and return its version.

    Raises:
        DistBackendError: there is none, or it is too old.
    """
    try:
        return _C.load_ucx(_SYSTEM_LIBRARY)
    except DistBackendError:
        wheel = next(_of_wheels(), None)
        if wheel is None:
            raise
        return _C.load_ucx(wheel)


def _of_wheels() -> Iterator[str]:
    from importlib import metadata  # some milliseconds that a mere import need not take

    for wheel in _WHEELS:
        try:
            files = metadata.files(wheel) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (str(f.locate()) for f in files if f.name == _SYSTEM_LIBRARY)


def _has_verbs() -> bool:
    """Return whether a port of InfiniBand or RoCE is up."""
    for state in Path(_VERBS_PORTS).glob("*/ports/*/state"):
        try:
            if "ACTIVE" in state.read_text():
                return True
        except OSError:  # it has just been unplugged
            continue
    return False
