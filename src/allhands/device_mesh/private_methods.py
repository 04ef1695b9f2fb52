"""PrivateMeshMethods: methods of torch's `DeviceMesh` with an underscore.

Libraries ask meshes by these names. New programs need none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allhands.device_mesh.grid import Dim, Grid
from allhands.device_mesh.layout import Layout, size_of

__all__ = ["PrivateMeshMethods", "described"]


class PrivateMeshMethods:
    """See the module; `DeviceMesh` derives from it."""

    _grid: Grid
    _names: tuple[str, ...]
    _dims: tuple[Dim, ...]

    @property
    def _dim_group_names(self) -> list[str]:
        """The names of this rank's groups, one per dimension."""
        return [dim.group.group_name for dim in self._dims if dim.group is not None]

    @property
    def _coordinate_on_dim(self) -> tuple[int, ...] | None:
        """`DeviceMesh.get_coordinate()`."""
        mesh: Any = self
        found: tuple[int, ...] | None = mesh.get_coordinate()
        return found

    @property
    def _rank_map(self) -> Any:
        """The ranks of the root mesh by place, as `DeviceMesh.mesh` has them."""
        return self._grid.library.from_numpy(self._grid.ranks.copy())

    @property
    def _flatten_mapping(self) -> dict[str, Any]:
        """The meshes that `DeviceMesh.flatten` made of the same root mesh, by name."""
        return dict(self._grid.flattened)

    def _get_root_mesh(self) -> Any:
        """Return the mesh that this one was cut out of; itself if it is whole."""
        return self._grid.root

    def _get_mesh_dim_by_name(self, mesh_dim_name: str) -> int:
        """Return the index of a dimension.

        Raises:
            KeyError: there is none of this name.
        """
        if mesh_dim_name not in self._names:
            raise KeyError(
                f"Mesh dimension {mesh_dim_name!r} does not exist. Available mesh "
                f"dimensions are: {list(self._names)}"
            )
        return self._names.index(mesh_dim_name)

    def _get_root_mesh_dim(self) -> int | None:
        """Return the index in the root mesh of the only dimension of this mesh.

        It is None if this mesh has several dimensions, or is the root.
        """
        root = self._get_root_mesh()
        if self is root or len(self._names) != 1 or self._names[0] not in root._names:
            return None
        found: int = root._get_mesh_dim_by_name(self._names[0])
        return found

    def _is_current_rank_part_of_mesh(self) -> bool:
        """Return whether this rank is in the mesh."""
        return self._grid.place is not None

    def _get_all_submeshes(self, mesh_dim_name: str) -> list[Any]:
        """Return a mesh for each line along a dimension, also of other ranks.

        Only the one through this rank has a group.
        """
        mesh: Any = self
        along = mesh._ranks()
        axis = self._get_mesh_dim_by_name(mesh_dim_name)
        lines = along.swapaxes(-1, axis).reshape(-1, along.shape[axis])
        mine = mesh[mesh_dim_name]
        own = mine._ranks().tolist() if self._is_current_rank_part_of_mesh() else None
        return [
            mine
            if line == own
            else type(mesh)(
                mesh.device_type,
                line,
                mesh_dim_names=(mesh_dim_name,),
                _init_backend=False,
            )
            for line in lines.tolist()
        ]


def described(device_type: str, names: Sequence[str], layouts: Sequence[Layout]) -> str:
    """Return the text of a mesh, as torch has it."""
    sizes = tuple(map(size_of, layouts))
    shape = str(sizes)
    if names:
        pairs = zip(names, sizes, strict=True)
        shape = f"({', '.join(f'{name}={size}' for name, size in pairs)})"
    strides = (
        tuple(run.stride for run in layout if run.size > 1) for layout in layouts
    )
    stride = tuple(s[0] if len(s) == 1 else s for s in strides)
    return f"DeviceMesh({shape}, {device_type!r}, stride={stride})"
