"""Shifts along the dimensions of a mesh; ranks are threads."""

import math

import numpy as np
import pytest

import allhands as dist
from allhands.device_mesh import DeviceMesh, init_device_mesh
from harness.ranks import run_ranks


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("displacement", [0, 1, -1, 2, 5])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 1), (2, 3)])
def test_a_shift_moves_what_ranks_have_along_a_dimension(shape, displacement, periodic):
    size = math.prod(shape)
    grid = np.arange(size).reshape(shape)

    def body(rank):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("y", "x"))
        found = []
        for axis, name in enumerate(("y", "x")):
            here = np.array([-1])
            src, dst = mesh.shift(name, displacement, periodic=periodic)
            assert mesh[name].shift(None, displacement, periodic=periodic) == (src, dst)
            dist.sendrecv(np.array([rank]), here, dst=dst, src=src)
            found.append((axis, int(here[0])))
        return found

    for rank, found in enumerate(run_ranks(size, body)):
        for axis, got in found:
            moved = np.roll(grid, displacement, axis)
            if not periodic:
                edge = [slice(None)] * 2
                span = abs(displacement)
                edge[axis] = (
                    slice(span) if displacement > 0 else slice(-span or 99, None)
                )
                moved[tuple(edge)] = -1
            assert got == moved.ravel()[rank]


def test_a_shift_of_ranks_that_are_not_in_order():
    def body(rank):
        mesh = DeviceMesh("cpu", [2, 0])
        if rank == 1:
            with pytest.raises(RuntimeError, match=r"rank 1 .* the ranks \[2, 0\]"):
                mesh.shift()
            return None
        return mesh.shift(), mesh.shift(0, periodic=True)

    none = dist.PROC_NULL
    assert run_ranks(3, body) == [((2, none), (2, 2)), None, ((none, 0), (0, 0))]


def test_a_shift_along_no_dimension():
    def body(rank):
        mesh = init_device_mesh("cpu", (1, 1))
        with pytest.raises(RuntimeError, match="2 dimensions"):
            mesh.shift()
        with pytest.raises(IndexError, match=r"\[-2, 2\), got 2"):
            mesh.shift(2)
        with pytest.raises(TypeError, match=r"shift: displacement must be .* 1\.5"):
            mesh.shift(0, 1.5)

    run_ranks(1, body)
