"""Backends by name: which there are, which serves which device, and how one is made.

`Backend` is torch.distributed's: a string with the names and tables on it. A backend of
ours is a module with `create`, loaded when its name is first asked for; one that a user
registers is a function. Adding one is a row of `_MODULES`. The tables are filled by
`register_backend`, which is to be called before groups are made, from one thread.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from allhands import settings
from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.gloo_library import why_no_gloo
from allhands.rendezvous.mpi_library import why_no_mpi

__all__ = [
    "Backend",
    "BackendConfig",
    "get_default_backend_for_device",
    "is_backend_available",
    "is_gloo_available",
    "is_mpi_available",
    "is_native",
    "is_nccl_available",
    "is_ucc_available",
    "is_xccl_available",
    "make_communicator",
    "why_not",
]

_MODULES = {
    "native": "allhands.backends.native",
    "gloo": "allhands.backends.gloo",
    "mpi": "allhands.backends.mpi",
    "fake": "allhands.backends.fake",
}

_LIBRARIES = {"mpi": why_no_mpi, "gloo": why_no_gloo}

_ABSENT = {
    name: (
        f"Distributed package doesn't have {name.upper()} built in: allhands has no "
        f'adapter for it yet; use backend="native", which serves CPU arrays'
    )
    for name in ("nccl", "ucc", "xccl")
}


class Backend(str):
    """A backend's name in lower case: `Backend("GLOO") == "gloo"`.

    A name that is not known yet is fine here (`register_backend` may come later);
    `init_process_group` refuses it.

    Raises:
        ValueError: the name is no string.
    """

    __slots__ = ()

    UNDEFINED = "undefined"
    NATIVE = "native"
    GLOO = "gloo"
    NCCL = "nccl"
    XCCL = "xccl"
    UCC = "ucc"
    MPI = "mpi"
    FAKE = "fake"

    backend_list: ClassVar[list[str]] = [
        *(UNDEFINED, NATIVE, GLOO, NCCL, XCCL, UCC, MPI, FAKE)
    ]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": NATIVE}
    backend_capability: ClassVar[dict[str, list[str]]] = {
        NATIVE: ["cpu"],
        GLOO: ["cpu", "cuda"],
        NCCL: ["cuda"],
        XCCL: ["xpu"],
        UCC: ["cpu", "cuda"],
        MPI: ["cpu", "cuda"],
        FAKE: ["cpu", "cuda", "hpu", "xpu"],
    }
    backend_type_map: ClassVar[dict[str, str]] = {name: name for name in backend_list}
    _plugins: ClassVar[dict[str, _Plugin]] = {}

    def __new__(cls, name: str) -> Backend:
        """`name` in lower case."""
        if not isinstance(name, str):
            raise ValueError(
                f"Backend constructor parameter must be string-ish, got {name!r}"
            )
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls,
        name: str,
        func: Callable[..., Any],
        extended_api: bool = False,
        devices: str | Sequence[str] | None = None,
    ) -> None:
        """Add a backend of your own under `name`.

        `func(store, rank, size, timeout)` is called for every group on each member, or
        `func(options, pg_options)` with `extended_api`, where `options` is a
        `CommunicatorOptions`. It returns a `Communicator`, or a `ProcessGroup` which
        then is the group. `devices` are the device types it serves (default: cpu and
        cuda); for those that have no default backend it becomes it.

        A name that is registered already gets this function instead; groups that were
        made keep theirs.

        Raises:
            ValueError: `name` is one of the backends built in.

        Example:
            ```python
            dist.Backend.register_backend("mine", make_mine, devices="cpu")
            dist.init_process_group("mine")
            ```
        """
        key = name.lower()
        if key in cls.backend_list and key not in cls._plugins:
            raise ValueError(f"{name} is a backend of allhands; choose another name")
        served = [devices] if isinstance(devices, str) else list(devices or ())
        cls._plugins[key] = _Plugin(func, extended_api)
        if key not in cls.backend_list:
            cls.backend_list.append(key)
        cls.backend_type_map[key] = "custom"
        cls.backend_capability[key] = served or ["cpu", "cuda"]
        for device in served:
            cls.default_device_backend_map.setdefault(device, key)
        setattr(cls, name.upper(), key)


@dataclass(frozen=True)
class _Plugin:
    func: Callable[..., Any]
    extended_api: bool

    def create(self, options: CommunicatorOptions, pg_options: Any) -> Any:
        if self.extended_api:
            return self.func(options, pg_options)
        return self.func(
            options.store, options.group_rank, options.group_size, options.timeout
        )


class BackendConfig:
    """Which backend serves which device type; `str()` gives "cpu:native,cuda:nccl".

    Made of a name (every device type the backend can serve), of "undefined" (the
    defaults), or of pairs "cpu:native,cuda:nccl".

    Raises:
        ValueError: a pair is malformed, or a device type comes twice.
        AssertionError: there is no backend of that name.

    Example:
        ```python
        str(dist.BackendConfig("cpu:native"))  # "cpu:native"
        ```
    """

    def __init__(self, backend: str) -> None:
        name = Backend(backend)
        self._backends: dict[str, Backend] = {}
        if ":" in name:
            self._parse(name)
        elif name == Backend.UNDEFINED:
            for device, default in Backend.default_device_backend_map.items():
                self._backends[device] = Backend(default)
        else:
            _check_known(name)
            for device in Backend.backend_capability[name]:
                self._backends[device] = name

    def _parse(self, text: str) -> None:
        form = (
            f"The custom backend string argument is invalid: {text}; its form is "
            f'"<device_type1>:<backend1>,<device_type2>:<backend2>...", '
            f"e.g. 'cpu:native,cuda:nccl'"
        )
        for pair in text.split(","):
            device, _, name = pair.strip().partition(":")
            if not device or not name or ":" in name:
                raise ValueError(f"Invalid device:backend pairing: {pair}. {form}")
            if device in self._backends:
                raise ValueError(
                    f"Duplicate device type {device} in backend string: {name}. {form}"
                )
            _check_known(name)
            self._backends[device] = Backend(name)

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self._backends.items())

    def get_device_backend_map(self) -> dict[str, Backend]:
        """Backend names by device type."""
        return self._backends


def make_communicator(name: str, options: CommunicatorOptions, pg_options: Any) -> Any:
    """What the backend `name` makes for a group: a `Communicator` or a `ProcessGroup`.

    Raises:
        RuntimeError: the backend is known but not available here.
    """
    plugin = Backend._plugins.get(name)
    if plugin is not None:
        return plugin.create(options, pg_options)
    if name not in _MODULES:
        raise RuntimeError(_ABSENT[name])
    module = importlib.import_module(_MODULES[_engine(name)])
    return module.create(name, options, pg_options)


def why_not(name: str) -> str:
    """Why the backend `name`, one of this package's, cannot be used; empty: it can."""
    engine = _engine(name)
    if engine not in _MODULES:
        return _ABSENT.get(engine, "there is no backend of that name")
    look = _LIBRARIES.get(engine)
    return "" if look is None else look()


def is_native(name: str) -> bool:
    """Whether the native engine serves groups of the backend `name`."""
    return _engine(name) == Backend.NATIVE


def _engine(name: str) -> str:
    """The name of what serves a program that says `name`."""
    is_replaced = name == Backend.GLOO and settings.replace_gloo.get()
    return Backend.NATIVE if is_replaced else name


def is_backend_available(backend: str) -> bool:
    """Whether `init_process_group` could use `backend`, a name or "device:name".

    Example:
        ```python
        dist.is_backend_available("native")  # True
        dist.is_backend_available("nccl")  # False
        ```
    """
    name = backend.lower().rpartition(":")[2]
    return name in Backend._plugins or not why_not(name)


def is_gloo_available() -> bool:
    """Whether `backend="gloo"` works: with torch, or replaced by the native engine."""
    return is_backend_available(Backend.GLOO)


def is_mpi_available() -> bool:
    """Whether `backend="mpi"` works where mpiexec starts the ranks: with mpi4py."""
    return is_backend_available(Backend.MPI)


def is_nccl_available() -> bool:
    """Whether `backend="nccl"` works."""
    return is_backend_available(Backend.NCCL)


def is_ucc_available() -> bool:
    """Whether `backend="ucc"` works."""
    return is_backend_available(Backend.UCC)


def is_xccl_available() -> bool:
    """Whether `backend="xccl"` works."""
    return is_backend_available(Backend.XCCL)


def get_default_backend_for_device(device: Any) -> str:
    """The backend that serves `device` in a group made without naming one.

    `device` is a type or name ("cpu", "cuda:1") or a `torch.device`.

    Raises:
        ValueError: none does.

    Example:
        ```python
        dist.get_default_backend_for_device("cpu")  # "native"
        ```
    """
    kind = str(device).partition(":")[0]
    try:
        return Backend.default_device_backend_map[kind]
    except KeyError:
        known = ", ".join(Backend.default_device_backend_map)
        raise ValueError(
            f"Default backend not registered for device : {device}; there is one for "
            f"{known}"
        ) from None


def _check_known(name: str) -> None:
    if name not in Backend.backend_list:
        raise AssertionError(
            f"Unknown backend type {name}; known are {', '.join(Backend.backend_list)}"
        )
