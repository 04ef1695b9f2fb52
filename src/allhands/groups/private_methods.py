"""PrivateMethods: methods of torch's `ProcessGroup` with an underscore.

Libraries ask groups by these names. New programs need none of them.
"""

from __future__ import annotations

import importlib
from typing import Any

from allhands.backends.communicator import Communicator
from allhands.backends.config import BackendConfig
from allhands.backends.hooks import HookedCommunicator

__all__ = ["PrivateMethods"]


class PrivateMethods:
    """See the module; `ProcessGroup` derives from it."""

    communicator: Communicator
    """Carries out the operations of this group."""
    config: BackendConfig | None
    backend: str
    _tag: str = ""
    """The tag that a library gave the group, or none; see `distributed_c10d`."""

    @property
    def _device_types(self) -> list[Any]:
        """The device types that the group serves, as devices of torch."""
        served = {} if self.config is None else self.config.get_device_backend_map()
        device = importlib.import_module("torch").device
        return [device(kind) for kind in served]

    def _get_backend_name(self) -> str:
        """Return the name of the backend that the group was made with."""
        return self.backend

    def _has_hooks(self) -> bool:
        """Return whether there are hooks on the group."""
        return isinstance(self.communicator, HookedCommunicator)

    def _get_sequence_number_for_group(self) -> int:
        """Return how many collectives of the group this rank has begun.

        As far as the flight recorder knows: it is 0 where the recorder is off.
        """
        entries = self.communicator.flight_entries()
        return max((e["sequence"] for e in entries if not e["is_message"]), default=0)

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: groups number their collectives from their beginning on."""

    def _set_group_desc(self, group_desc: str) -> None:
        """Set `ProcessGroup.group_desc` on this rank."""
        self.group_desc = group_desc

    def _wait_for_pending_works(self) -> None:
        """Do nothing: leaving a group waits for operations under way."""

    def _enable_collectives_timing(self) -> None:
        """Do nothing: the flight recorder notes the times of all operations."""
