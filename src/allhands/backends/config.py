"""BackendConfig: which backend serves which type of device, parsed from a name."""

from __future__ import annotations

from allhands.backends.lookup import look_up
from allhands.backends.registry import (
    Backend,
    engine_of,
    get_default_backend_for_device,
    is_device_type,
)
from allhands.rendezvous.asked import NOTHING, Asked

__all__ = ["BackendConfig", "asked_for"]


class BackendConfig:
    """Which backend serves which device type; `str()` gives "cpu:native,cuda:nccl".

    The argument is a name (for every device type that the backend can serve),
    "undefined" (for the defaults), or pairs "cpu:native,cuda:nccl".

    Raises:
        ValueError: a pair is malformed, a device type is unknown or given twice, or it
            is a URL.
        AssertionError: there is no backend with this name.
        RuntimeError: a package offers the backend, but it cannot be loaded.

    Example:
        ```python
        str(dist.BackendConfig("cpu:native"))  # "cpu:native"
        ```
    """

    def __init__(self, backend: str) -> None:
        name = Backend(backend)
        self.device_backend_map: dict[str, Backend] = {}
        """Backend names by device type."""
        if ":" in name or "," in name:
            self._parse(name)
        elif name == Backend.UNDEFINED:
            for device in Backend.default_device_backend_map:
                default = get_default_backend_for_device(device)
                self.device_backend_map[device] = Backend(default)
        else:
            look_up(name)
            for device in Backend.backend_capability[name]:
                self.device_backend_map[device] = name

    def _parse(self, text: str) -> None:
        form = (
            f"The custom backend string argument is invalid: {text}; its form is "
            f'"<device_type1>:<backend1>,<device_type2>:<backend2>...", '
            f"e.g. 'cpu:native,cuda:nccl'"
        )
        if "://" in text:
            raise ValueError(
                f"{text!r} is no backend but a URL: pass it as init_method"
            )
        for pair in text.split(","):
            device, _, name = pair.strip().partition(":")
            if not device or not name or ":" in name:
                raise ValueError(f"Invalid device:backend pairing: {pair}. {form}")
            if device in self.device_backend_map:
                raise ValueError(
                    f"Duplicate device type {device} in backend string: {name}. {form}"
                )
            look_up(name)
            if not is_device_type(device):
                raise ValueError(
                    f"Unknown device type {device!r} in backend string {text!r}. Write "
                    f"'cpu' or 'cuda', or a type that a backend was registered for "
                    f"(Backend.register_backend(..., devices=[{device!r}]))"
                )
            self.device_backend_map[device] = Backend(name)

    def __repr__(self) -> str:
        return ",".join(
            f"{device}:{name}" for device, name in self.device_backend_map.items()
        )

    def get_device_backend_map(self) -> dict[str, Backend]:
        """Return backend names by device type."""
        return self.device_backend_map

    @property
    def usual_device_type(self) -> str:
        """The type of device that serves any operation: the CPU, if possible."""
        served = list(self.device_backend_map)
        return "cpu" if "cpu" in served or not served else served[0]


def asked_for(backend: str) -> Asked:
    """Return what a rank that passes `backend` tells the others, in one form for all.

    "cuda:nccl,cpu:native" is the same as "cpu:native,cuda:nccl", and "cpu:native" the
    same as "native": a call for a device that this rank does not serve fails here.
    """
    name = Backend(backend)
    if name == Backend.UNDEFINED:
        return NOTHING
    devices = BackendConfig(name).get_device_backend_map()
    engines = {device: engine_of(each) for device, each in sorted(devices.items())}
    text = ",".join(f"{device}:{engine}" for device, engine in engines.items())
    [engine, *others] = set(engines.values())
    if not others and min(engines) == min(Backend.backend_capability[engine]):
        text = engine  # they meet, whatever other devices it serves
    usual = Backend.default_device_backend_map
    is_usual = all(
        engine in (Backend.NATIVE, usual.get(device))
        for device, engine in engines.items()
    )
    return Asked(text, is_usual)
