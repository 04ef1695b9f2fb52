"""What the native engine's tuning is made of on this host, besides its defaults.

The settings win over what `allhands tune` has found for this CPU, which lasts in the
user's configuration, and that over the figures which a first group takes up to 3 ms to
find, and which are kept until the host is booted again (see csrc/allhands/calibration).
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
    """What `allhands tune` found: changes of the tuning, by name.

    `roomy` holds where each rank has a CPU, `crowded` where ranks take turns.
    """

    roomy: Mapping[str, int]
    crowded: Mapping[str, int]

    def changes(self, ranks: int, cpus: int) -> Mapping[str, int]:
        """Those for so many ranks on so many CPUs."""
        return self.crowded if ranks > cpus else self.roomy


def tuning_changes(peers: Sequence[tuple[str, int, int, str]]) -> dict[str, int]:
    """The changes for a group of these processes; see `_C.Communicator`.

    Raises:
        ValueError: the setting is no list of numbers by name.
    """
    tuned = read_tuned()
    changes = tuned.changes(len(peers), _C.num_cpus(peers)) if tuned else {}
    return {**changes, **settings.tuning.get()}


def figures_folder() -> str:
    """Where the figures of this boot are kept; empty: they shall not be looked for.

    A folder of this user's own, in memory: in the runtime directory, if it is this
    user's (sudo may leave another's), or else in /dev/shm.
    """
    if settings.calibration.get() == "no":
        return ""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError):
        if runtime and os.stat(runtime).st_uid == os.geteuid():
            return f"{runtime}/allhands"
    return f"/dev/shm/allhands-{os.geteuid()}"


def find_figures() -> None:
    """Find the figures of this boot, unless they are kept; it takes up to 3 ms.

    For who starts ranks: before they run the machine is quieter than ever after.

    Raises:
        ValueError: the setting is no word that it can be.
    """
    if folder := figures_folder():
        _C.figures(folder, rehearse=True)


def tuned_path() -> Path:
    """Where `allhands tune` writes."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home, "allhands", "tuning.json")


_last: tuple[tuple[str, int, int], Tuned | None] | None = None  # by path, time and size


def read_tuned() -> Tuned | None:
    """What was found for this CPU; None where nothing was, or it shall not hold."""
    return None if settings.calibration.get() == "no" else kept_tuned()


def kept_tuned() -> Tuned | None:
    """What was found for this CPU, whether it shall hold or not; None: nothing.

    A file that another user may have written, that is of another CPU, or that is not
    whole counts as none.
    """
    global _last
    path = tuned_path()
    try:
        found = path.stat()
    except OSError:
        return None
    version = (str(path), found.st_mtime_ns, found.st_size)
    if _last is None or _last[0] != version:
        _last = (version, _read(path))
    return _last[1]


def _read(path: Path) -> Tuned | None:
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
    except (OSError, ValueError, RecursionError):  # json's, where lists nest deeply
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
        if not name.isascii():  # the core could not even read some
            raise ValueError(f"no number is called {name!r}")
        if type(number) is not int or not 0 <= number < 1 << 63:
            raise ValueError(f"{name} is {number!r}")
    _C.tuning_here(1, changes=record)  # raises where it has no such number
    return record


def write_tuned(tuned: Tuned) -> None:
    """Keep it for this CPU and this user, in place of what was found before.

    Raises:
        OSError: it cannot be written.
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
        draft.chmod(0o644)  # whatever the umask lets others do
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
