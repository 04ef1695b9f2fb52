"""The changes to the native engine's default tuning on this host.

They come from three sources, in order of precedence: the settings; the results of
`allhands tune` for this CPU, which are kept in the user's configuration; and figures
that the first group measures in up to 3 ms, and that are kept until the next boot of
the host (see csrc/allhands/calibration).
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allhands import _C, settings

__all__ = [
    "Tuned",
    "figures_folder",
    "find_figures",
    "kept_tuned",
    "read_tuned",
    "tuned_path",
    "tuning_changes",
    "write_tuned",
]

_FORMAT = 1
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Tuned:
    """The results of `allhands tune`: changes of the tuning, by name.

    `roomy` applies if each rank has a CPU, `crowded` if ranks take turns.
    """

    roomy: Mapping[str, int]
    crowded: Mapping[str, int]

    def changes(self, ranks: int, cpus: int) -> Mapping[str, int]:
        """Return the changes for this number of ranks and CPUs."""
        return self.crowded if ranks > cpus else self.roomy


def tuning_changes(peers: Sequence[tuple[str, int, int, str]]) -> dict[str, int]:
    """Return the changes for a group of these processes; see `_C.Communicator`.

    Raises:
        ValueError: the setting is not a list of numbers by name.
    """
    tuned = read_tuned()
    changes = tuned.changes(len(peers), _C.num_cpus(peers)) if tuned else {}
    return {**changes, **settings.tuning.get()}


def figures_folder() -> str:
    """Return the folder for the figures of this boot; empty if calibration is off.

    The folder is in memory and belongs to this user. It is in the runtime directory if
    that belongs to this user (sudo may leave that of another user), otherwise in
    /dev/shm.
    """
    if settings.calibration.get() == "no":
        return ""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError):
        if runtime and os.stat(runtime).st_uid == os.geteuid():
            return f"{runtime}/allhands"
    return f"/dev/shm/allhands-{os.geteuid()}"


def find_figures() -> None:
    """Measure the figures of this boot, unless they are kept; this takes up to 3 ms.

    For code that starts ranks: before the ranks run, the machine is quieter than
    afterwards.

    Raises:
        ValueError: the setting has an unknown value.
    """
    if folder := figures_folder():
        _C.figures(folder, rehearse=True)


def tuned_path() -> Path:
    """Return the file that `allhands tune` writes."""
    return Path(_tuned_path())


def _tuned_path() -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(home, "allhands", "tuning.json")


_last: tuple[tuple[str, int, int], Tuned | None] | None = None  # by path, time and size


def read_tuned() -> Tuned | None:
    """Return the results for this CPU; None without any, or if calibration is off."""
    return None if settings.calibration.get() == "no" else kept_tuned()


def kept_tuned() -> Tuned | None:
    """Return the results for this CPU, whether or not they apply; None without any.

    A file does not count if another user may have written it, if it is for another CPU,
    or if it is incomplete.
    """
    global _last
    path = _tuned_path()
    try:
        found = os.stat(path)
    except OSError:
        return None
    version = (path, found.st_mtime_ns, found.st_size)
    if _last is None or _last[0] != version:
        _last = (version, _read(path))
    return _last[1]


def _read(path: str) -> Tuned | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            others = stat.S_IWGRP | stat.S_IWOTH
            is_own = found.st_uid == os.geteuid() and not found.st_mode & others
            if not is_own or not stat.S_ISREG(found.st_mode):
                return None
            return _parse(os.read(file, _MOST_BYTES))
        finally:
            os.close(file)
    except (OSError, ValueError, RecursionError):  # the last: deeply nested lists
        return None


def _parse(text: bytes) -> Tuned | None:
    record = json.loads(text)
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        return None
    if record.get("cpu") != _C.cpu_model():
        return None
    return Tuned(_changes(record.get("roomy")), _changes(record.get("crowded")))


def _changes(record: Any) -> Mapping[str, int]:
    if not isinstance(record, dict):
        raise ValueError(f"numbers by name are {record!r}")
    for name, number in record.items():
        if not name.isascii():  # the core could not even parse some
            raise ValueError(f"no number is called {name!r}")
        if type(number) is not int or not 0 <= number < 1 << 63:
            raise ValueError(f"{name} is {number!r}")
    _C.tuning_here(1, changes=record)  # raises if there is no such number
    return record


def write_tuned(tuned: Tuned) -> None:
    """Write the results for this CPU and this user, replacing earlier ones.

    Raises:
        OSError: the file cannot be written.
    """
    path = tuned_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "format": _FORMAT,
        "cpu": _C.cpu_model(),
        "roomy": dict(tuned.roomy),
        "crowded": dict(tuned.crowded),
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(record, indent=1) + "\n")
        draft.chmod(0o644)  # whatever the umask allows
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
