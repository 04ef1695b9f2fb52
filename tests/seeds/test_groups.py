"""The pages' groups, subgroups and meshes."""

import numpy as np
import pytest

import allhands as dist
from allhands.device_mesh import DeviceMesh, init_device_mesh
from harness.ranks import run_ranks

NOT_A_MEMBER = dist.GroupMember.NON_GROUP_MEMBER


def test_all_reduce_on_a_group(xp):
    def body(rank):
        group = dist.new_group([0, 1])
        tensor = xp.ones(1)
        if rank < 2:
            dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
        return tensor[0].item()

    assert run_ranks(2, body) == [2.0, 2.0]
    assert run_ranks(3, body) == [2.0, 2.0, 1.0]


def test_a_rank_outside_the_group_is_warned(xp):
    """The tutorial's program with three ranks: the third calls all_reduce as well."""

    def body(rank):
        group = dist.new_group([0, 1])
        tensor = xp.ones(1)
        if rank == 2:
            with pytest.warns(UserWarning, match="all_reduce on global rank 2"):
                assert dist.all_reduce(tensor, group=group) is None
            assert dist.get_rank(group) == dist.get_world_size(group) == -1
        else:
            dist.all_reduce(tensor, group=group)
        return tensor[0].item()

    assert run_ranks(3, body) == [2.0, 2.0, 1.0]


def test_ranks_of_a_group():
    def body(rank):
        group = dist.new_group([1, 3])
        if group is NOT_A_MEMBER:
            return None
        world = dist.group.WORLD
        assert dist.get_group_rank(world, rank) == dist.get_global_rank(world, rank)
        assert dist.get_global_rank(group, dist.get_rank(group)) == rank
        return dist.get_group_rank(group, rank), dist.get_process_group_ranks(group)

    assert run_ranks(4, body) == [None, (0, [1, 3]), None, (1, [1, 3])]


def test_new_subgroups_of_a_machine(xp):
    """Eight ranks on one machine: 28 is sum(range(8))."""

    def body(rank):
        current, subgroups = dist.new_subgroups()
        tensor = xp.ones(1) * rank
        dist.all_reduce(tensor, group=current)
        for subgroup in subgroups:
            dist.destroy_process_group(subgroup)
        return tensor.tolist()

    assert run_ranks(8, body) == [[28.0]] * 8


def test_new_subgroups_by_enumeration(xp):
    def body(rank):
        current, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        tensor = xp.ones(1) * rank
        dist.all_reduce(tensor, group=current)
        return tensor.tolist()

    assert run_ranks(4, body) == [[2.0], [4.0], [2.0], [4.0]]


def test_destroy_one_group_then_the_world(xp):
    def body(rank):
        group = dist.new_group([0, 1])
        dist.destroy_process_group(group)
        tensor = xp.ones(1)
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        return tensor.tolist(), dist.is_initialized()

    assert run_ranks(2, body) == [([2.0], False)] * 2


def test_init_device_mesh(xp):
    def body(rank):
        line = init_device_mesh("cpu", mesh_shape=(8,))
        grid = init_device_mesh("cpu", mesh_shape=(2, 4), mesh_dim_names=("dp", "tp"))
        tensor = xp.asarray([rank])
        dist.all_reduce(tensor, group=grid["tp"].get_group())
        return line.get_local_rank(), grid.get_coordinate(), tensor.tolist()

    expected = [
        (rank, (rank // 4, rank % 4), [6 if rank < 4 else 22]) for rank in range(8)
    ]
    found = run_ranks(8, body)
    assert [(line, tuple(at), total) for line, at, total in found] == expected


def test_device_mesh_of_rows_and_columns(xp):
    """Reductions over columns join (0, 4), (1, 5), ...; over rows (0, 1, 2, 3), ..."""

    def body(rank):
        mesh = DeviceMesh(device_type="cpu", mesh=[[0, 1, 2, 3], [4, 5, 6, 7]])
        column, row = xp.asarray([rank]), xp.asarray([rank])
        dist.all_reduce(column, group=mesh.get_group(0))
        dist.all_reduce(row, group=mesh.get_group(1))
        ranks = mesh.get_local_rank(mesh_dim=0), mesh.get_local_rank(mesh_dim=1)
        return ranks, column.item(), row.item()

    assert run_ranks(8, body) == [
        ((rank // 4, rank % 4), 2 * (rank % 4) + 4, 6 if rank < 4 else 22)
        for rank in range(8)
    ]


def test_slices_of_a_mesh():
    def body(rank):
        names = ("dp", "pp", "cp")
        plane = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        cube = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=names)
        with pytest.raises(KeyError, match="should be in ascending order"):
            cube["cp", "dp"]  # on the page, but torch 2.13 refuses it with these words
        return ranks_of(plane["tp"]), ranks_of(plane["dp"]), ranks_of(cube["dp", "cp"])

    rows, columns, slices = zip(*run_ranks(8, body), strict=True)
    assert rows == ([0, 1, 2, 3],) * 4 + ([4, 5, 6, 7],) * 4
    assert columns == ([0, 4], [1, 5], [2, 6], [3, 7]) * 2
    near, far = [[0, 1], [4, 5]], [[2, 3], [6, 7]]
    assert slices == (near, near, far, far) * 2


def test_flatten_a_mesh():
    def body(rank):
        names = ("dp", "cp", "tp")
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=names)
        flat = mesh["dp", "cp"]._flatten()
        assert ranks_of(mesh["dp_cp"]) == ranks_of(flat)
        return flat.mesh_dim_names, ranks_of(flat)

    expected = [(("dp_cp",), [0, 2, 4, 6]), (("dp_cp",), [1, 3, 5, 7])] * 4
    assert run_ranks(8, body) == expected


def ranks_of(mesh):
    return np.asarray(mesh.mesh).tolist()
