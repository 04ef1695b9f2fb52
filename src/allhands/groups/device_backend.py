"""DeviceBackend: what serves one type of device in a group, under torch's names.

torch's groups consist of such objects, and libraries ask them for names, ranks and
options. Its operations are those of the group's communicator, without the group's
hooks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from allhands.backends.communicator import Communicator
from allhands.groups.torch_methods import TorchMethods

__all__ = ["BackendOptions", "DeviceBackend"]


class _Group(Protocol):
    """The group that it is of."""

    group_name: str

    @property
    def global_ranks(self) -> Any: ...
    @property
    def timeout(self) -> timedelta: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def peer_meant(
        self, role: str, rank: int | None, group_rank: int | None
    ) -> int: ...
    def set_timeout(self, timeout: timedelta) -> None: ...
    def abort(self, reason: str = "") -> None: ...
    def shutdown(self) -> None: ...
    def _get_sequence_number_for_group(self) -> int: ...


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What the backend of a group was told; torch's `Backend.Options`."""

    backend: str
    """Its name."""
    _timeout: timedelta
    global_ranks_in_group: list[int]
    group_name: str


class DeviceBackend(TorchMethods):
    """See the module; equal to others of the same communicator."""

    supports_splitting = True
    supports_coalescing = False
    supports_time_estimate = False

    def __init__(self, group: _Group, communicator: Communicator, backend: str) -> None:
        self._group, self.communicator, self._backend = group, communicator, backend

    @property
    def options(self) -> BackendOptions:
        """What the backend was told, as it is now."""
        group = self._group
        ranks = list(group.global_ranks)
        return BackendOptions(self._backend, group.timeout, ranks, group.group_name)

    def name(self) -> str:
        """See `ProcessGroup.name`."""
        return self._backend

    _get_backend_name = name

    def rank(self) -> int:
        """See `ProcessGroup.rank`."""
        return self._group.rank()

    def size(self) -> int:
        """See `ProcessGroup.size`."""
        return self._group.size()

    def peer_meant(self, role: str, peer: int | None, group_peer: int | None) -> int:
        """See `ProcessGroup.peer_meant`."""
        return self._group.peer_meant(role, peer, group_peer)

    def abort(self) -> None:
        """Break the whole group, see `ProcessGroup.abort`."""
        self._group.abort()

    def shutdown(self) -> None:
        """Leave the whole group, see `ProcessGroup.shutdown`."""
        self._group.shutdown()

    def _set_default_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of the whole group, see `ProcessGroup.set_timeout`."""
        self._group.set_timeout(timeout)

    def _get_sequence_number_for_group(self) -> int:
        """See `ProcessGroup`'s method of this name."""
        return self._group._get_sequence_number_for_group()

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: groups number their collectives from their beginning on."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceBackend):
            return NotImplemented
        return self.communicator is other.communicator

    def __hash__(self) -> int:
        return hash(id(self.communicator))
