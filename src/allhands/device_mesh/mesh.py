"""DeviceMesh: the ranks of the world on an n-dimensional grid, with a group per line.

In a mesh of shape (2, 4), each rank is in one group along dimension 0, with the ranks
of its column, and in one along dimension 1, with those of its row. Each rank makes only
these groups, and making them sends no message. So a mesh costs each rank as many groups
as it has dimensions.

A mesh that is made from another one, or from parts of it, shares its groups. It is a
view, which knows the layout of each of its dimensions on the whole grid.

Only one thread at a time may make meshes, in the same order on all their ranks. Any
thread may read them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from allhands.device_mesh.active import active, innermost
from allhands.device_mesh.checks import (
    check_apart,
    check_device_type,
    check_is_alive,
    check_is_inside,
    check_is_line,
    check_lines,
    check_names,
    check_new_name,
    check_parts,
    check_ranks,
    check_same_grid,
    check_slice,
    dim_named,
    dims_named,
    groups_and_mesh,
    index_of,
    index_to_cut,
    one_override,
    overrides_by_dim,
)
from allhands.device_mesh.grid import Dim, Grid, Override
from allhands.device_mesh.layout import cut, joined, position, size_of
from allhands.device_mesh.private_methods import PrivateMeshMethods, described
from allhands.groups.lifetime import init_process_group
from allhands.groups.process_group import ProcessGroup
from allhands.groups.queries import get_rank, is_initialized

__all__ = ["DeviceMesh"]


class DeviceMesh(PrivateMeshMethods):
    """The ranks of the world, or some of them, on an n-dimensional grid.

    Every rank of the mesh makes it with the same arguments; other ranks may, too. Along
    each dimension this rank is in one group, in which its rank is its coordinate. A
    dimension over the whole world, in order, has the default group.

    If there is no world, the call runs `init_process_group()`. Within a `with` block of
    the mesh, `DeviceMesh.current()` returns it.

    Args:
        device_type: "cpu", "cuda", ...: the device type of the arrays, without an
            index.
        mesh: an array or nested list of global ranks.
        mesh_dim_names: a name for each dimension.
        backend_override: for each dimension, the backend and options of its group.
        _init_backend: if False, no groups are made.
        _rank: the rank whose view of the mesh this is, if there is no world.
        _layout: not used.
        _rank_map: not used.
        _root_mesh: not used.

    Raises:
        RuntimeError: the mesh has more ranks than the world; the names are not unique,
            or there is not one per dimension; the device type has an index.
        ValueError: a rank is given twice or is out of range.
        TypeError: `mesh` is missing, or does not hold integers.

    Example:
        ```python
        mesh = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
        dist.all_reduce(array, group=mesh.get_group("tp"))  # 0 with 1, 2 with 3
        ```
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: Sequence[Override] | None = None,
        _init_backend: bool = True,
        _rank: int | None = None,
        _layout: Any = None,
        _rank_map: Any = None,
        _root_mesh: Any = None,
    ) -> None:
        if mesh is None:
            raise TypeError("DeviceMesh: the argument mesh is required")
        check_device_type(device_type)
        if _init_backend and not is_initialized():
            init_process_group()
        rank = get_rank() if _rank is None and is_initialized() else _rank
        grid = self._grid = Grid(device_type, mesh, -1 if rank is None else rank)
        if is_initialized():
            check_ranks(grid.ranks)
        ndim = len(grid.axes)
        self._names = check_names(mesh_dim_names, ndim)
        self._dims = tuple(Dim(layout, None) for layout in grid.axes)
        grid.root = self
        if _init_backend:
            self._make_groups(0, backend_override or [(None, None)] * ndim)

    def _make_groups(self, first: int, overrides: Sequence[Override]) -> None:
        """Make groups with these backends for the dimensions from `first` on."""
        dims = list(self._dims)
        for axis, override in enumerate(overrides, first):
            label = self._names[axis] if self._names else f"dim_{axis}"
            dims[axis] = self._grid.make_dim(dims[axis].layout, label, override)
        self._dims = tuple(dims)

    def _view(self, dims: Sequence[Dim], names: tuple[str, ...]) -> DeviceMesh:
        """Return a mesh of some dimensions of the same grid."""
        view = object.__new__(DeviceMesh)
        view._grid, view._dims, view._names = self._grid, tuple(dims), names
        return view

    @staticmethod
    def from_group(
        group: ProcessGroup | list[ProcessGroup],
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:
        """Make a mesh from existing groups: one per dimension, in this order.

        For a single group, `mesh` may be omitted. For a list of groups, `mesh` and
        `mesh_dim_names` are required.

        Raises:
            ValueError: an argument is missing, or `mesh` has other ranks than a group.

        Example:
            ```python
            world = dist.group.WORLD
            mesh = DeviceMesh.from_group(world, "cpu", mesh_dim_names=("dp",))
            ```
        """
        groups, mesh = groups_and_mesh(group, mesh, mesh_dim_names)
        made = DeviceMesh(
            device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False
        )
        check_lines(made._grid, groups)
        made._dims = tuple(map(Dim, made._grid.axes, groups))
        return made

    @staticmethod
    def current() -> DeviceMesh:
        """Return the mesh of the innermost `with` block of this thread.

        Raises:
            RuntimeError: there is none.
        """
        mesh: DeviceMesh = innermost()
        return mesh

    def __enter__(self) -> DeviceMesh:
        active.set((*active.get(), self))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        active.set(active.get()[:-1])

    @property
    def device_type(self) -> str:
        """The device type of the arrays: "cpu", "cuda", ..."""
        return self._grid.device_type

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the dimensions; None if there are none."""
        return self._names or None

    @property
    def mesh(self) -> Any:
        """The global ranks as a new int32 array, of torch if made from a tensor.

        Else it is NumPy's. In a mesh cut out of another: the ranks within reach.
        """
        return self._grid.library.from_numpy(self._ranks().copy())

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ranks along each dimension."""
        return tuple(size_of(dim.layout) for dim in self._dims)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Return the number of ranks, in total or along a dimension.

        Raises:
            IndexError, KeyError: there is no such dimension.
        """
        if mesh_dim is None:
            return math.prod(self.shape)
        return size_of(self._dim(mesh_dim).layout)

    def get_rank(self) -> int:
        """This process's global rank."""
        return get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Return this rank's index along each dimension; None outside the mesh."""
        place = self._grid.place
        if place is None:
            return None
        return tuple(position(dim.layout, place) for dim in self._dims)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return this rank's position along a dimension: its rank in that group.

        Raises:
            RuntimeError: this rank is not in the mesh, or the mesh has several
                dimensions and none is named.
            IndexError, KeyError: there is no such dimension.
        """
        dim = self._dim(mesh_dim)
        return position(dim.layout, self._place())

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Return this rank's group along a dimension, given by index or name.

        Raises:
            RuntimeError: this rank is not in the mesh, the mesh has several dimensions
                and none is named, it was made without groups, or the group was
                destroyed.
            IndexError, KeyError: there is no such dimension.
        """
        dim = self._dim(mesh_dim)
        self._place()
        if dim.group is None:
            how = "the mesh was made with _init_backend=False: no groups"
            raise RuntimeError(f"DeviceMesh process groups not initialized! {how}")
        check_is_alive(dim.group)
        return dim.group

    def get_all_groups(self) -> list[ProcessGroup]:
        """Return this rank's groups, one per dimension.

        Raises:
            RuntimeError: see `get_group`.
        """
        return [self.get_group(index) for index in range(self.ndim)]

    def shift(
        self,
        mesh_dim: int | str | None = None,
        displacement: int = 1,
        *,
        periodic: bool = False,
    ) -> tuple[int, int]:
        """Return the source and destination along a dimension, for `sendrecv`.

        The data of every rank moves by `displacement` places, backwards if this is
        negative, as with MPI's `Cart_shift`. Both results are global ranks. Beyond an
        edge they are `PROC_NULL`, or with `periodic` the ranks at the other end. The
        call sends no message.

        Raises:
            RuntimeError, IndexError, KeyError: see `get_local_rank`.
            TypeError: `displacement` is not an int.

        Example:
            ```python
            src, dst = mesh.shift("x")
            dist.sendrecv(grid[-2], grid[0], dst=dst, src=src)
            ```
        """
        layout = self._dim(mesh_dim).layout
        return self._grid.shifted(layout, self._place(), displacement, periodic)

    def abort(self) -> None:
        """Break this rank's groups along all dimensions, for all of their members.

        A rank that waits in such a group gets an error at once, and so does every
        further operation, see `ProcessGroup.abort`. A dimension over the whole world
        may have the default group. On a rank outside the mesh, or for a mesh without
        groups, the call does nothing. Any thread may call it.

        Example:
            ```python
            mesh.abort()  # in a thread that found out that the job cannot go on
            ```
        """
        for dim in self._dims:
            if dim.group is not None:
                dim.group.abort("DeviceMesh.abort() was called")

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """Return the mesh of some dimensions, named in their order, through this rank.

        The call makes no groups. It also accepts names that `flatten` gave.

        Raises:
            RuntimeError: the mesh has no names, or a dimension is named twice.
            TypeError: the dimensions are not given by names.
            KeyError: there is no such dimension, or the order differs.

        Example:
            ```python
            mesh = dist.init_device_mesh(
                "cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp")
            )
            plane = mesh["dp", "tp"]  # 2 x 2 ranks, this one among them
            ```
        """
        if not self._names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = check_slice(mesh_dim_names)
        if names == self._names:
            return self
        dims = dims_named(names, self._by_name())
        return self._view(dims, names)

    def flatten(
        self, mesh_dim_name: str | None = None, backend_override: Any = None
    ) -> DeviceMesh:
        """Return a mesh of the same ranks in one dimension, with a group of all.

        Every rank of the mesh calls it. The name of the new dimension is
        `mesh_dim_name`, by default "dp_tp" for ("dp", "tp"). From then on the mesh can
        be sliced by this name. The same call again gives the same mesh.
        `backend_override` is as in `init_device_mesh`, for one dimension.

        Raises:
            RuntimeError: the mesh has no names.
            ValueError: the name is taken.
        """
        if not self._names:
            raise RuntimeError("Cannot flatten a DeviceMesh without mesh_dim_names!")
        name = mesh_dim_name or "_".join(self._names)
        if self._names == (name,):
            return self
        check_new_name(name, self._names, self)
        flattened = self._grid.flattened
        layout = joined(dim.layout for dim in self._dims)
        if name not in flattened:
            override = one_override(backend_override)
            dim = self._grid.make_dim(layout, name, override)
            flattened[name] = self._view([dim], (name,))
        elif flattened[name]._dims[0].layout != layout:
            raise ValueError(
                f"Flatten mesh with mesh_dim_name {name} has been created before, "
                f"Please specify another valid mesh_dim_name."
            )
        made: DeviceMesh = flattened[name]
        return made

    def unflatten(
        self,
        dim: int | str,
        mesh_sizes: Sequence[int],
        mesh_dim_names: Sequence[str],
        backend_override: Mapping[int | str, Any] | None = None,
    ) -> DeviceMesh:
        """Return a mesh with the dimension `dim` cut into several, each with a group.

        Every rank of the mesh calls it. The parts have the given sizes and names, in
        row-major order. Their groups have the backends of `backend_override`, as in
        `init_device_mesh`. The other dimensions keep their groups.

        Raises:
            RuntimeError: the mesh has no names, or the new names are not unique, or
                there is not one per size.
            ValueError: there is no such dimension; the product of `mesh_sizes` is not
                its size; or the dimension was flattened and `mesh_sizes` do not fit its
                parts.

        Example:
            ```python
            mesh = dist.init_device_mesh("cpu", (8,), mesh_dim_names=("world",))
            mesh = mesh.unflatten("world", (2, 4), ("dp", "tp"))
            ```
        """
        if not self._names:
            raise RuntimeError("Cannot unflatten a DeviceMesh without mesh_dim_names!")
        at = index_to_cut(dim, self._names, self.ndim)
        check_parts(mesh_sizes, mesh_dim_names, self.shape[at], at)
        names = (*self._names[:at], *mesh_dim_names, *self._names[at + 1 :])
        layouts = cut(self._dims[at].layout, mesh_sizes)
        if layouts is None:
            raise ValueError(
                f"unflatten: {self._names[at]!r} was flattened out of dimensions of "
                f"which mesh_sizes={tuple(mesh_sizes)} has no parts: {self}"
            )
        dims = list(self._dims)
        dims[at : at + 1] = [Dim(layout, None) for layout in layouts]
        made = self._view(dims, check_names(names, len(dims)))
        if self._dims[at].group is not None:
            overrides = overrides_by_dim(
                backend_override or {}, tuple(mesh_dim_names), len(layouts)
            )
            made._make_groups(at, overrides)
        return made

    @staticmethod
    def concatenate(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """Return the mesh of all dimensions of several meshes, in their order.

        The meshes must be cut out of one mesh, or out of several with the same ranks at
        the same places. The call makes no groups. The new mesh has the ranks that this
        rank can reach.

        Raises:
            ValueError: the list is empty.
            RuntimeError: the meshes have different ranks, one has no names, a name
                occurs twice, or the meshes overlap.

        Example:
            ```python
            mesh = dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
            parts = mesh["tp"].unflatten("tp", (2, 2), ("sp", "ep"))
            mesh = dist.DeviceMesh.concatenate([mesh["dp"], parts["ep"]])
            ```
        """
        check_same_grid([mesh._grid for mesh in device_mesh_list])
        if not all(mesh._names for mesh in device_mesh_list):
            raise RuntimeError("Cannot concatenate a DeviceMesh without names!")
        dims = [dim for mesh in device_mesh_list for dim in mesh._dims]
        check_apart(dims, device_mesh_list)
        names = [name for mesh in device_mesh_list for name in mesh._names]
        return device_mesh_list[0]._view(dims, check_names(names, len(dims)))

    # The names in torch.distributed
    _flatten = flatten
    _unflatten = unflatten
    _concatenate = concatenate

    def __repr__(self) -> str:
        layouts = [dim.layout for dim in self._dims]
        return described(self.device_type, self._names, layouts)

    def __eq__(self, other: object) -> bool:
        """Return whether ranks, places, names and device type are equal."""
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.device_type, self._names, self.shape, self._ranks().tobytes()

    def _ranks(self) -> npt.NDArray[np.int32]:
        return self._grid.ranks_along([dim.layout for dim in self._dims])

    def _by_name(self) -> dict[str, Dim]:
        """Return dimensions by name, with flattened ones that lie within this mesh."""
        own = dict(zip(self._names, self._dims, strict=bool(self._names)))
        return own | self._grid.flattened_within(dim.layout for dim in self._dims)

    def _dim(self, key: int | str | None) -> Dim:
        if key is None:
            check_is_line(self.ndim)
            return self._dims[0]
        if isinstance(key, str):
            if key in self._names:
                return self._dims[self._names.index(key)]
            return dim_named(key, self._by_name())
        return self._dims[index_of(key, self._names, self.ndim)]

    def _place(self) -> int:
        """Return this rank's place on the grid."""
        check_is_inside(self._grid, self)
        assert self._grid.place is not None
        return self._grid.place
