"""GroupIdentity: what torch knows of a group besides its operations."""

from __future__ import annotations

import weakref
from typing import Any

import torch.distributed

from allhands.torch.backend import CAN_BE_MADE, AllhandsBackend
from allhands.torch.uncompiled import uncompiled

__all__ = ["DEVICES", "NAME", "GroupIdentity"]

NAME = "allhands"
DEVICES = "cpu", "cuda"
"""The types of devices whose tensors a group takes; the engine copies those on GPUs."""


@uncompiled
class GroupIdentity(torch.distributed.ProcessGroup):  # type: ignore[misc]
    """A group with its store, its names, and the devices that it serves.

    The methods have the names that torch's Python or C++ code calls.

    Args:
        store: the store that the members share.
        rank: this process's rank in the group.
        size: the number of ranks in the group.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._torch_store = store
        self._group_name = ""
        self._group_desc = "undefined"

    def _register_devices(self) -> None:
        """Register a backend for each type of device, if this torch accepts one."""
        if CAN_BE_MADE:  # it must not hold the group, which holds it
            self._backend = AllhandsBackend(weakref.proxy(self))
            kind = torch.distributed.ProcessGroup.BackendType.CUSTOM
            self._set_default_backend(kind)
            for device in DEVICES:
                self._register_backend(torch.device(device), kind, self._backend)

    if not CAN_BE_MADE:  # then the group is its own backend
        supports_splitting = True
        supports_coalescing = False
        supports_shrinking = False
        supports_time_estimate = False
        _device_types = property(lambda _: [*map(torch.device, DEVICES)])

        def _get_backend(self, device: torch.device) -> GroupIdentity:
            """Return this group."""
            if torch.device(device).type not in DEVICES:
                raise RuntimeError(
                    f"group {self._group_name!r} has no backend for tensors of device "
                    f"{str(device)!r}: {NAME!r} serves {' and '.join(DEVICES)} only"
                )
            return self

    @property
    def group_name(self) -> str:
        """The name by which torch knows the group."""
        return self._group_name

    @property
    def group_desc(self) -> str:
        """Free text."""
        return self._group_desc

    def get_group_store(self) -> Any:
        """Return the store that the members share."""
        return self._torch_store

    def getBackendName(self) -> str:
        """The name of the backend."""
        return NAME

    def getGroupName(self) -> str:
        """See `group_name`."""
        return self._group_name

    def getGroupDesc(self) -> str:
        """See `group_desc`."""
        return self._group_desc

    def _set_group_name(self, name: str) -> None:
        """Set the name, and meet the other members.

        Raises:
            DistStoreError: some members, which the message names, did not come within
                the timeout.
            DistBackendError: members are on several hosts, and some do not listen for
                the others.
        """
        self._group_name = name
        self._meet()

    def _meet(self) -> None:
        raise NotImplementedError  # the subclass implements it

    def _set_group_desc(self, desc: str) -> None:
        self._group_desc = desc
