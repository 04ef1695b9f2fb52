"""Where the native engine finds what was measured of this host."""

from __future__ import annotations

import os

from allhands import settings

__all__ = ["figures_folder"]


def figures_folder() -> str:
    """Where the figures of this boot are kept; empty: they shall not be looked for.

    A folder of this user's own, in memory: the runtime directory, or else in /dev/shm.
    See csrc/allhands/calibration.
    """
    if settings.calibration.get() == "no":
        return ""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/allhands" if runtime else f"/dev/shm/allhands-{os.geteuid()}"
