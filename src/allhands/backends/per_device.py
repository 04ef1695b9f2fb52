"""A communicator for arrays on several types of device, each served by its own backend.

A call goes to the communicator that serves its first array, or the first of its list.
As thread-safe as these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from allhands.arrays import device_of
from allhands.backends.communicator import Communicator

__all__ = ["by_device"]

_FOR_ALL = {"set_timeout", "abort", "note_failure", "close"}
_WITHOUT_ARRAYS = {"barrier", "empty_shared"}


def by_device(communicators: dict[str, Communicator]) -> Communicator:
    """One that hands calls on to `communicators`, which are by type of device."""
    return cast(Communicator, _ByDevice(communicators))


class _ByDevice:
    def __init__(self, communicators: dict[str, Communicator]) -> None:
        self._communicators = communicators

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            chosen = self._serving(name, *arguments)
            results = [getattr(one, name)(*arguments, **options) for one in chosen]
            return results[0]

        return call

    def _serving(self, name: str, *arguments: Any) -> Iterable[Communicator]:
        if name in _FOR_ALL:
            return dict.fromkeys(self._communicators.values())
        operation, *rest = arguments if name == "persistent" else (name, *arguments)
        device = "cpu" if operation in _WITHOUT_ARRAYS else _device_of(rest[0])
        if device not in self._communicators:
            raise RuntimeError(
                f"No backend type associated with device type {device}: this group "
                f"serves {', '.join(self._communicators)}"
            )
        return [self._communicators[device]]


def _device_of(arrays: Any) -> str:
    return device_of(arrays[0] if isinstance(arrays, list) and arrays else arrays)
