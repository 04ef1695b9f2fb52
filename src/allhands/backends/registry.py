"""The registered backends, and how a backend makes a communicator.

`Backend` has the interface of torch.distributed: a string class with names and tables
as attributes. A backend of this package is a module with a function `create`, loaded
when its name is first used; it takes one row of `_MODULES`. A backend of a user is a
function. `register_backend` fills the tables; `lookup` calls it for backends of
installed packages.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from allhands import settings
from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.nccl.library import why_not_found

__all__ = [
    "ABSENT",
    "Backend",
    "BackendType",
    "engine_of",
    "get_default_backend_for_device",
    "is_device_type",
    "is_native",
    "is_registered",
    "make_communicator",
]

_MODULES = {
    "native": "allhands.backends.native",
    "gloo": "allhands.backends.gloo.backend",
    "mpi": "allhands.backends.mpi.backend",
    "nccl": "allhands.backends.nccl.backend",
    "xccl": "allhands.backends.xccl.backend",
    "fake": "allhands.backends.fake",
}

ABSENT = {
    "ucc": (
        "Distributed package doesn't have UCC built in: allhands has no adapter for "
        'libucc.so yet, whether it is installed or not; use backend="native"'
    )
}
"""The backends without an adapter, with the error text."""


_DEVICE_TYPES = (
    *("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve"),
    *("fpga", "maia", "xla", "lazy", "vulkan", "mps", "meta", "hpu", "mtia"),
    "privateuseone",
)
"""The device types of torch."""


class BackendType(IntEnum):
    """torch's numbers for backends; those that torch does not have are CUSTOM."""

    UNDEFINED = 0
    GLOO = 1
    NCCL = 2
    UCC = 3
    MPI = 4
    XCCL = 5
    CUSTOM = 6


class _Plugin(NamedTuple):
    """What `register_backend` was given."""

    creator_fn: Callable[..., Any]
    extended_api: bool

    def create(self, options: CommunicatorOptions, pg_options: Any) -> Any:
        if self.extended_api:
            return self.creator_fn(options, pg_options)
        return self.creator_fn(
            options.store, options.group_rank, options.group_size, options.timeout
        )


class Backend(str):
    """A backend's name in lower case: `Backend("GLOO") == "gloo"`.

    The class accepts unknown names, because `register_backend` may come later.
    `init_process_group` refuses them.

    Raises:
        ValueError: the name is not a string.
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
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": NATIVE, "cuda": NCCL}
    backend_capability: ClassVar[dict[str, list[str]]] = {
        NATIVE: ["cpu", "cuda"],
        GLOO: ["cpu", "cuda"],
        NCCL: ["cuda"],
        XCCL: ["cpu"],
        UCC: ["cpu", "cuda"],
        MPI: ["cpu", "cuda"],
        FAKE: ["cpu", "cuda", "hpu", "xpu"],
    }
    backend_type_map: ClassVar[dict[str, BackendType]] = {
        name: BackendType.__members__.get(name.upper(), BackendType.CUSTOM)
        for name in backend_list
    }
    _BackendPlugin: ClassVar = _Plugin
    _plugins: ClassVar[dict[str, _Plugin]] = {}

    def __new__(cls, name: str) -> Backend:
        """Return `name` in lower case."""
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
        """Register a backend under `name`.

        For every group, each member calls `func(store, rank, size, timeout)`. With
        `extended_api` it calls `func(options, pg_options)`, where `options` is a
        `CommunicatorOptions`. The function returns a `Communicator`, or a
        `ProcessGroup`, which then is the group. `devices` are the device types that the
        backend serves; without them it warns, and takes cpu and cuda. For device types
        without a default backend, this backend becomes the default.

        If the name is registered already, this function replaces the old one. Existing
        groups keep theirs. Packages offer backends by entry points; a backend that the
        program registers under the same name takes precedence.

        Raises:
            ValueError: `name` is the name of a built-in backend, or not a name that
                `init_process_group` could take.

        Example:
            ```python
            dist.Backend.register_backend("mine", make_mine, devices="cpu")
            dist.init_process_group("mine")
            ```
        """
        key, constant = name.lower(), name.upper()
        if key in cls.backend_list and constant not in cls._plugins:
            raise ValueError(f"{name} is a backend of allhands; choose another name")
        if not key or set(key) & set(":, \t\n"):
            raise ValueError(
                f"a backend's name has no blanks, commas or colons, which stand "
                f"between names in 'cpu:native,cuda:nccl'; got {name!r}"
            )
        served = [devices] if isinstance(devices, str) else list(devices or ())
        if devices is None:
            warnings.warn(
                f"Device capability of {name} unspecified, assuming cpu and cuda: pass "
                f"the device types that it serves, such as devices=['cpu']",
                stacklevel=2,
            )
        plugin = _Plugin(func, extended_api)
        cls.backend_type_map[key] = BackendType.CUSTOM
        cls.backend_capability[key] = served or ["cpu", "cuda"]
        for device in served:
            cls.default_device_backend_map.setdefault(device, key)
        setattr(cls, constant, key)
        # true in one thread only
        is_new = cls._plugins.setdefault(constant, plugin) is plugin
        cls._plugins[constant] = plugin
        if is_new:
            cls.backend_list.append(key)


def is_registered(name: str) -> bool:
    """Return whether a program or an installed package registered backend `name`."""
    return name.upper() in Backend._plugins


def is_device_type(name: str) -> bool:
    """Return whether torch or a registered backend knows the device type `name`."""
    served = Backend.backend_capability.values()
    return name in _DEVICE_TYPES or any(name in types for types in served)


def make_communicator(name: str, options: CommunicatorOptions, pg_options: Any) -> Any:
    """Make a `Communicator` or a `ProcessGroup` for a group of the backend `name`.

    Raises:
        RuntimeError: the backend is registered but not available here.
    """
    plugin = Backend._plugins.get(name.upper())
    if plugin is not None:
        return plugin.create(options, pg_options)
    if name not in _MODULES:
        raise RuntimeError(ABSENT[name])
    module = importlib.import_module(_MODULES[engine_of(name)])
    return module.create(name, options, pg_options)


def is_native(name: str) -> bool:
    """Return whether the native engine serves groups of the backend `name`."""
    return engine_of(name) == Backend.NATIVE


def engine_of(name: str) -> str:
    """Return the name of the backend that serves a program which names `name`."""
    is_replaced = name == Backend.GLOO and settings.replace_gloo.get()
    return Backend.NATIVE if is_replaced else name


def get_default_backend_for_device(device: Any) -> str:
    """Return the backend that serves `device` in a group made without a backend.

    `device` is a type or name ("cpu", "cuda:1") or a `torch.device`. For "cuda" it is
    "nccl" if NVIDIA's bindings and a driver are installed, else "native".

    Raises:
        ValueError: no backend does.

    Example:
        ```python
        dist.get_default_backend_for_device("cpu")  # "native"
        ```
    """
    kind = str(device).partition(":")[0]
    try:
        default = Backend.default_device_backend_map[kind]
        is_missing = default == Backend.NCCL and why_not_found()
        return Backend.NATIVE if is_missing else default
    except KeyError:
        known = ", ".join(Backend.default_device_backend_map)
        raise ValueError(
            f"Default backend not registered for device : {device}; there is one for "
            f"{known}"
        ) from None
