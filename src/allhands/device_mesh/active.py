"""The meshes of the `with` blocks that a thread is in, also under torch's name."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

__all__ = ["active", "innermost", "mesh_resources"]

active: ContextVar[tuple[Any, ...]] = ContextVar("allhands_mesh", default=())
"""The meshes of the `with` blocks that this thread is in, the innermost last."""


def innermost() -> Any:
    """Return the mesh of the innermost `with` block of this thread.

    Raises:
        RuntimeError: there is none.
    """
    if not active.get():
        raise RuntimeError("No device mesh is currently active!")
    return active.get()[-1]


class _MeshResources:
    """What torch calls `_mesh_resources`; libraries ask it for meshes."""

    @property
    def mesh_stack(self) -> list[Any]:
        """See `active`."""
        return list(active.get())

    def get_current_mesh(self) -> Any:
        """Return `innermost()`."""
        return innermost()

    def get_root_mesh(self, device_mesh: Any) -> Any:
        """Return the mesh that `device_mesh` was cut out of."""
        return device_mesh._get_root_mesh()


mesh_resources = _MeshResources()
