"""Meshes that are cut, joined and put side by side."""

import numpy as np
import pytest

import allhands as dist
from allhands.device_mesh import DeviceMesh, init_device_mesh
from harness.meshes import NAMES, cube
from harness.ranks import run_ranks
from harness.worlds import total


def test_slices_share_groups():
    def body(rank):
        mesh = cube()
        count = dist.get_pg_count()
        plane = mesh["a", "c"]
        b = mesh.get_local_rank("b")
        rows = [[0, 1], [4, 5]] if b == 0 else [[2, 3], [6, 7]]
        assert plane.mesh.tolist() == rows
        assert plane.get_coordinate() == (
            mesh.get_local_rank("a"),
            mesh.get_local_rank("c"),
        )
        assert plane.get_group("c") is mesh.get_group("c") is plane["c"].get_group()
        assert mesh["a", "b", "c"] is mesh
        for index in (0, ("a", 1), None):
            with pytest.raises(TypeError, match="by the names of its dimensions"):
                mesh[index]
        assert dist.get_pg_count() == count
        return plane["a"].mesh.tolist()

    lines = run_ranks(8, body)
    assert lines == [[rank % 4, rank % 4 + 4] for rank in range(8)]


def test_flatten_joins_dimensions():
    def body(rank):
        mesh = cube()
        flat = mesh["a", "c"].flatten()
        assert repr(flat) == "DeviceMesh((a_c=4), 'cpu', stride=((4, 1),))"
        assert repr(mesh["a", "b"].flatten("ab")).endswith("stride=(2,))")
        assert flat.mesh.tolist() == ([0, 1, 4, 5] if rank % 4 < 2 else [2, 3, 6, 7])
        assert flat.get_local_rank() == flat.get_group().rank()
        assert mesh["a_c"] == flat
        again = mesh["a", "c"]._flatten()  # torch's spelling; makes nothing new
        assert again.get_group() is flat.get_group() is mesh.get_group("a_c")
        assert mesh["ab", "c"].shape == (4, 2)
        assert mesh["a"].flatten() == mesh["a"]
        with pytest.raises(ValueError, match="ab has been created before"):
            mesh["b", "c"].flatten("ab")
        with pytest.raises(ValueError, match="a already exists for submesh"):
            mesh["a", "b"].flatten("a")
        with pytest.raises(RuntimeError, match="without mesh_dim_names"):
            init_device_mesh("cpu", (2, 4)).flatten()
        return total(flat.get_group())

    assert run_ranks(8, body) == [10, 10, 18, 18] * 2


def test_unflatten_cuts_a_dimension():
    def body(rank):
        line = init_device_mesh("cpu", (8,), mesh_dim_names=("all",))
        mesh = line._unflatten("all", (2, 2, 2), NAMES)  # torch's spelling
        assert mesh == cube()
        assert [total(g) for g in mesh.get_all_groups()] == [
            total(g) for g in cube().get_all_groups()
        ]
        plane = mesh["a", "b"].unflatten(-1, (1, 2), ("x", "y"), {"x": "fake"})
        assert plane.mesh_dim_names == ("a", "x", "y")
        assert plane.get_group("a") is mesh.get_group("a")
        assert dist.get_backend(plane.get_group("x")) == "fake"
        assert total(plane.get_group("y")) == total(mesh.get_group("b"))
        assert (
            plane.flatten("ab").mesh.tolist() == mesh["a", "b"].flatten().mesh.tolist()
        )

    run_ranks(8, body)


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (("q", (4, 2), ("a", "b")), ValueError, r"dim q .* not in \('all',\)"),
        ((1, (4, 2), ("a", "b")), ValueError, "dim 1 .* is out of range 1"),
        ((0, (4, 3), ("a", "b")), ValueError, r"mesh_sizes=\(4, 3\) is 12.* size 8"),
        ((0, (-4, -2), ("a", "b")), ValueError, r"mesh_sizes=\(-4, -2\) is 8"),
        ((0, (4, 2), ("a",)), RuntimeError, r"same length.* \('a',\) for \(4, 2\)"),
        ((0, (4, 2), ("a", "a")), RuntimeError, "must be unique"),
        ((0, (4, 2), ("a", "b"), {"c": "fake"}), RuntimeError, "invalid keys"),
    ],
)
def test_dimensions_that_cannot_be_cut(arguments, kind, text):
    def body(rank):
        mesh = init_device_mesh("cpu", (8,), mesh_dim_names=("all",))
        with pytest.raises(kind, match=text):
            mesh.unflatten(*arguments)
        with pytest.raises(RuntimeError, match="unflatten a DeviceMesh without"):
            init_device_mesh("cpu", (8,)).unflatten(*arguments)

    run_ranks(8, body, backend="fake")


def test_a_mesh_without_groups_is_cut_into_one_without():
    def body(rank):
        whole = DeviceMesh("cpu", [0, 1], mesh_dim_names="a", _init_backend=False)
        with pytest.raises(RuntimeError, match="no groups"):
            whole.unflatten("a", (1, 2), ("x", "y")).get_group("y")

    run_ranks(2, body)


@pytest.mark.parametrize(
    ("key", "kind", "text"),
    [
        (
            "tp",
            KeyError,
            r"Invalid mesh_dim_names \('tp',\) specified. Valid mesh_dim_names are "
            r"\['a', 'b', 'c'\].",
        ),
        (("a", "x"), KeyError, r"Invalid mesh_dim_names \('a', 'x'\) specified"),
        (("c", "a"), KeyError, "should be in ascending order"),
        (("a", "a"), RuntimeError, r"Slicing overlapping dim_names \('a', 'a'\)"),
    ],
)
def test_names_that_cannot_be_sliced(key, kind, text):
    def body(rank):
        with pytest.raises(kind, match=text):
            cube()[key]

    run_ranks(8, body, backend="fake")


def test_meshes_of_one_grid_are_put_side_by_side():
    def body(rank):
        mesh = cube()
        count = dist.get_pg_count()
        side = DeviceMesh._concatenate([mesh["c"], mesh["a"]])  # torch's spelling
        assert side.mesh_dim_names == ("c", "a")
        assert side.get_coordinate() == (rank % 2, rank // 4)
        assert side.mesh.tolist() == mesh["a", "c"].mesh.T.tolist()
        assert side.get_all_groups() == [mesh.get_group("c"), mesh.get_group("a")]
        assert dist.get_pg_count() == count
        return side.mesh.tolist()

    found = run_ranks(8, body)
    assert found[0] == found[5] == [[0, 4], [1, 5]]
    assert found[2] == [[2, 6], [3, 7]]


def test_parts_of_cut_dimensions_are_put_side_by_side():
    """Two ways to cut the same eight ranks, and dimensions of both in one mesh."""

    def body(rank):
        world = init_device_mesh("cpu", (8,), mesh_dim_names=("world",))
        dense = world.unflatten("world", (4, 2), ("dp", "tp"))
        sparse = world.unflatten("world", (2, 2, 2), ("rep", "ep", "etp"))
        mixed = DeviceMesh.concatenate([sparse["rep"], dense["tp"]])
        at = {"mesh": [[0, 1], [4, 5]], "first": rank % 4 // 2 * 2}
        assert mixed.mesh.tolist() == (np.array(at["mesh"]) + at["first"]).tolist()
        assert mixed.get_group("rep") is sparse.get_group("rep")
        assert mixed.flatten().get_group().size() == 4
        assert total(mixed.get_group("rep")) == 2 * (rank % 4) + 4
        with pytest.raises(RuntimeError, match="overlapping meshes"):
            DeviceMesh.concatenate([dense["dp"], sparse["ep"]])
        again = DeviceMesh.concatenate(
            [
                init_device_mesh("cpu", (2, 4), mesh_dim_names=("x", "y"))["x"],
                dense["tp"],
            ]
        )  # a grid of its own
        assert again.shape == (2, 2)

    run_ranks(8, body)


@pytest.mark.parametrize(
    ("meshes", "kind", "text"),
    [
        (lambda mesh: [], ValueError, "an empty list"),
        (lambda mesh: [mesh["a"], mesh["a"]], RuntimeError, "overlapping meshes"),
        (
            lambda mesh: [mesh["a", "b"].flatten("ab"), mesh["b"]],
            RuntimeError,
            "overlapping meshes",
        ),
        (
            lambda mesh: [mesh["a"], DeviceMesh("cpu", [1, 0], mesh_dim_names="b")],
            RuntimeError,
            "different device meshs",
        ),
        (
            lambda mesh: [mesh["a"], DeviceMesh("cpu", mesh.mesh)],
            RuntimeError,
            "without names",
        ),
        (
            lambda mesh: [
                mesh["a"],
                DeviceMesh("cpu", mesh.mesh, mesh_dim_names=("x", "a", "y"))["a"],
            ],
            RuntimeError,
            "must be unique",
        ),
    ],
)
def test_meshes_that_cannot_be_put_side_by_side(meshes, kind, text):
    def body(rank):
        with pytest.raises(kind, match=text):
            DeviceMesh.concatenate(meshes(cube()))

    run_ranks(8, body, backend="fake")


def test_a_flattened_dimension_is_cut_where_its_parts_allow_it():
    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2, 3), mesh_dim_names=NAMES)
        flat = mesh["a", "c"].flatten("ac")
        with pytest.raises(ValueError, match=r"'ac' was flattened .*\(3, 2\) has no"):
            flat.unflatten("ac", (3, 2), ("x", "y"))
        cut = flat.unflatten("ac", (2, 3), ("x", "y"))
        assert cut.mesh.tolist() == mesh["a", "c"].mesh.tolist()

    run_ranks(12, body, backend="fake")
