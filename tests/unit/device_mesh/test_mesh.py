"""Device meshes, with ranks as threads."""

import copy
import pickle
import threading
import time

import numpy as np
import pytest

import allhands as dist
from allhands.device_mesh import DeviceMesh, init_device_mesh
from harness.pace import patient
from harness.ranks import LIMIT, run_ranks

NAMES = ("a", "b", "c")


def total(group):
    """The sum of the members' global ranks, by all_reduce."""
    array = np.array([dist.get_rank()])
    dist.all_reduce(array, group=group)
    return int(array[0])


def cube():
    return init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=NAMES)


def test_every_line_of_a_cube_is_a_group():
    def body(rank):
        begun = time.monotonic()
        mesh = cube()
        a, b, c = mesh.get_coordinate()
        assert rank == 4 * a + 2 * b + c == mesh.get_rank()
        assert dist.get_pg_count() == 4  # the world's, and one per dimension
        sums = [total(group) for group in mesh.get_all_groups()]
        assert sums == [
            4 + 2 * (2 * b + c),
            2 + 2 * (4 * a + c),
            1 + 2 * (4 * a + 2 * b),
        ]
        for dim, name in enumerate(NAMES):
            group = mesh.get_group(name)
            assert group is mesh.get_group(dim) is mesh[name].get_group()
            assert (
                mesh.get_local_rank(name) == group.rank() == mesh.get_coordinate()[dim]
            )
            assert group.group_desc == f"mesh_{name}"
        return begun, time.monotonic()

    for begun, end in run_ranks(8, body):
        assert end - begun < patient(5, begun)  # 15 ms on an idle machine


def test_what_a_mesh_says_of_itself():
    def body(rank):
        mesh = cube()
        assert (mesh.ndim, mesh.shape, mesh.size(), mesh.size(1)) == (
            3,
            (2, 2, 2),
            8,
            2,
        )
        assert mesh.size("c") == 2
        assert (mesh.device_type, mesh.mesh_dim_names) == ("cpu", NAMES)
        assert repr(mesh) == "DeviceMesh((a=2, b=2, c=2), 'cpu', stride=(4, 2, 1))"
        assert repr(mesh["a"]) == "DeviceMesh((a=2), 'cpu', stride=(4,))"
        assert isinstance(mesh.mesh, np.ndarray)
        assert (mesh.mesh == np.arange(8).reshape(2, 2, 2)).all()
        plain = init_device_mesh("cpu", (8,))
        assert repr(plain) == "DeviceMesh((8,), 'cpu', stride=(1,))"
        assert plain.mesh_dim_names is None
        mesh.mesh[:] = 0
        assert mesh.mesh.max() == 7  # it was a copy

    run_ranks(8, body, backend="fake")


def test_a_mesh_over_the_world_has_its_group():
    def body(rank):
        assert init_device_mesh("cpu", (4,)).get_group() is dist.group.WORLD
        assert cube_of(2, 2).flatten().get_group() is dist.group.WORLD
        reverse = DeviceMesh("cpu", [3, 2, 1, 0])
        assert reverse.get_group() is not dist.group.WORLD
        assert reverse.get_group().rank() == reverse.get_local_rank() == 3 - rank
        return total(reverse.get_group())

    def cube_of(*shape):
        return init_device_mesh("cpu", shape, mesh_dim_names=NAMES[: len(shape)])

    assert run_ranks(4, body) == [6] * 4


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
    "through", [copy.deepcopy, lambda held: pickle.loads(pickle.dumps(held))]
)
def test_copies_have_the_same_groups(through):
    def body(rank):
        mesh = cube()
        flat = mesh["a", "b"].flatten("ab")
        held = through({"mesh": mesh, "flat": flat, "world": dist.group.WORLD})
        assert held["world"] is dist.group.WORLD
        assert held["mesh"] == mesh
        assert held["mesh"].get_all_groups() == mesh.get_all_groups()
        assert held["flat"].get_group() is held["mesh"].get_group("ab")
        assert held["mesh"].get_coordinate() == mesh.get_coordinate()
        assert held["mesh"].mesh.tolist() == mesh.mesh.tolist()

    run_ranks(8, body)


def test_a_pickled_group_is_read_where_it_is():
    def body(rank):
        pair = dist.new_group([0, 1])
        text = pickle.dumps(pair)
        assert pickle.loads(text) is pair
        dist.destroy_process_group(pair)
        with pytest.raises(ValueError, match="'1' is not registered in this process"):
            pickle.loads(text)

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


def test_dimensions_that_are_not_there():
    def body(rank):
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
        with pytest.raises(RuntimeError, match="DeviceMesh have 2 dimensions"):
            mesh.get_group()
        with pytest.raises(RuntimeError, match="DeviceMesh have 2 dimensions"):
            mesh.get_local_rank()
        with pytest.raises(KeyError, match="Mesh dimension 'q' does not exist"):
            mesh.get_group("q")
        with pytest.raises(IndexError, match=r"mesh_dim must be in \[-2, 2\), got 2"):
            mesh.size(2)
        with pytest.raises(KeyError, match=r"Valid mesh_dim_names are \['a'\]"):
            mesh["a"]["b"]
        with pytest.raises(RuntimeError, match="Cannot slice a DeviceMesh without"):
            DeviceMesh("cpu", [0])["a"]
        for ask in DeviceMesh.get_group, DeviceMesh.get_local_rank:
            with pytest.raises(KeyError, match="No `mesh_dim_names` found"):
                ask(DeviceMesh("cpu", [0]), "a")
        return mesh.get_group(-1) is mesh.get_group("b")

    assert run_ranks(1, body) == [True]


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (
            lambda: init_device_mesh("cpu", (2, 2)),
            RuntimeError,
            "Mesh should not be bigger than default world size 2, but found 4 ranks!",
        ),
        (
            lambda: init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "a")),
            RuntimeError,
            r"Found repeated mesh_dim_name in mesh_dim_names \('a', 'a'\)",
        ),
        (
            lambda: init_device_mesh("cpu", (1, 2), mesh_dim_names=("a",)),
            RuntimeError,
            r"Found len\(mesh_dim_names\): 1 and len\(mesh_shape\):2.",
        ),
        (
            lambda: init_device_mesh("cuda:0", (2,)),
            RuntimeError,
            "Device type with index is not supported but got cuda:0",
        ),
        (lambda: init_device_mesh("cpu", (-1, 2)), ValueError, "positive sizes"),
        (
            lambda: init_device_mesh("cpu", 2),
            TypeError,
            r"mesh_shape must be a tuple of ints, got 2; for one dimension pass \(2,\)",
        ),
        (
            lambda: init_device_mesh("cpu", (2.0,)),
            TypeError,
            r"mesh_shape must be a tuple of ints, got \(2.0,\)",
        ),
        (
            lambda: init_device_mesh(None, (2,)),
            TypeError,
            "device_type must be a str .*, got None",
        ),
        (lambda: DeviceMesh("cpu", [0, 5]), ValueError, "Rank 5 is out of range"),
        (
            lambda: DeviceMesh("cpu", [1, 1]),
            ValueError,
            r"duplicate entries, got \[1, 1",
        ),
        (
            lambda: DeviceMesh("cpu", [0.5]),
            TypeError,
            "must hold integers, got float64",
        ),
        (
            lambda: DeviceMesh("cpu", [[0], [0, 1]]),
            ValueError,
            r"as many ranks in each list of a dimension, got \[\[0\], \[0, 1\]\]",
        ),
        (lambda: DeviceMesh("cpu"), TypeError, "the argument mesh is required"),
        (
            lambda: init_device_mesh("cpu", (2,), backend_override={"q": "fake"}),
            RuntimeError,
            r"got \['q'\], expected integers in range \[0, 1\)",
        ),
        (
            lambda: init_device_mesh(
                "cpu", (2,), mesh_dim_names=("a",), backend_override={"a": "x", 0: "y"}
            ),
            RuntimeError,
            "Found redundant dim index 0 and name a",
        ),
    ],
)
def test_meshes_that_cannot_be(make, kind, text):
    def body(rank):
        with pytest.raises(kind, match=text):
            make()

    run_ranks(2, body)


def test_a_dimension_may_have_a_backend_of_its_own():
    def body(rank):
        mesh = init_device_mesh(
            "cpu", (2,), mesh_dim_names=("a",), backend_override={"a": "fake"}
        )
        assert mesh.get_group() is not dist.group.WORLD
        assert dist.get_backend(mesh.get_group()) == "fake"
        with pytest.raises(TypeError, match="takes NativeOptions as pg_options, got 3"):
            init_device_mesh("cpu", (2,), backend_override={0: ("native", 3)})

    run_ranks(2, body)


def test_a_rank_outside_a_mesh():
    def body(rank):
        mesh = DeviceMesh("cpu", [[0, 2]], mesh_dim_names=("a", "b"))
        assert mesh.mesh.tolist() == [[0, 2]]
        if rank != 1:
            return total(mesh.get_group("b"))
        assert mesh.get_coordinate() is None
        text = r"rank 1 \(this process\) is not in DeviceMesh.* has the ranks \[\[0, 2"
        for question in (mesh.get_group, mesh.get_local_rank):
            with pytest.raises(RuntimeError, match=text):
                question("b")
        return mesh["a"].mesh.tolist()

    assert run_ranks(3, body) == [2, [0], 2]


def test_equality_is_that_of_ranks_names_and_device():
    def body(rank):
        mesh = cube()
        assert mesh == cube()
        assert hash(mesh) == hash(cube())
        assert mesh["a"] == mesh["a"] != mesh["b"]
        assert mesh != init_device_mesh("cpu", (2, 2, 2))
        assert mesh != init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=NAMES)
        assert mesh != 3

    run_ranks(8, body, backend="fake")


def test_a_mesh_of_groups_that_are_there():
    def body(rank):
        column = [rank % 2, rank % 2 + 2]
        row = [rank // 2 * 2, rank // 2 * 2 + 1]
        groups = [
            dist.new_group(ranks, use_local_synchronization=True)
            for ranks in (column, row)
        ]
        grid = [[0, 1], [2, 3]]
        mesh = DeviceMesh.from_group(groups, "cpu", grid, mesh_dim_names=("dp", "tp"))
        assert mesh.get_all_groups() == groups
        assert mesh["dp"].mesh.tolist() == column
        single = DeviceMesh.from_group(groups[0], "cpu")
        assert single.get_group() is groups[0]
        assert single.mesh.tolist() == column
        world = DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh_dim_names=("w",))
        assert world["w"].get_group() is dist.group.WORLD
        for arguments, names, text in (
            ((groups, "cpu"), None, "Must pass mesh if passing multiple"),
            ((groups, "cpu", grid), None, "Must pass mesh_dim_names if passing"),
            (([], "cpu"), None, "at least one ProcessGroup"),
            ((groups, "cpu", [0, 1, 2, 3]), ("a",), "and 2 ProcessGroups"),
            (
                (groups[::-1], "cpu", grid),
                ("a", "b"),
                "Invalid mesh: along dimension 0",
            ),
            ((groups[0], "cpu", [0, 1]), None, r"Invalid mesh \[0, 1\] for Process"),
        ):
            with pytest.raises(ValueError, match=text):
                DeviceMesh.from_group(*arguments, mesh_dim_names=names)
        return total(mesh.get_group("dp")), total(mesh.get_group("tp"))

    assert run_ranks(4, body) == [(2, 1), (4, 1), (2, 5), (4, 5)]


def test_the_mesh_of_a_block():
    def body(rank):
        outer, inner = cube(), init_device_mesh("cpu", (8,))
        with outer as mesh:
            assert mesh is outer is DeviceMesh.current()
            with inner:
                assert DeviceMesh.current() is inner
            assert DeviceMesh.current() is outer
        with pytest.raises(RuntimeError, match="No device mesh is currently active!"):
            DeviceMesh.current()

    run_ranks(8, body, backend="fake")


def test_a_mesh_makes_the_world_where_there_is_none(monkeypatch, tmp_path):
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }.items():
        monkeypatch.setenv(name, value)

    def body(rank):
        mesh = init_device_mesh("cpu", (1,))
        return mesh.get_group() is dist.group.WORLD

    assert run_ranks(1, body, init=False) == [True]


def test_a_mesh_without_groups():
    mesh = DeviceMesh("cpu", [[0, 1], [2, 3]], _init_backend=False, _rank=2)
    assert mesh.get_coordinate() == (1, 0)
    with pytest.raises(RuntimeError, match=r"groups not initialized!.*_init_"):
        mesh.get_group(0)


def test_a_mesh_of_a_tensor_gives_a_tensor():
    torch = pytest.importorskip("torch")

    def body(rank):
        mesh = DeviceMesh("cpu", torch.tensor([[0, 1]]), mesh_dim_names=("a", "b"))
        assert torch.equal(mesh.mesh, torch.tensor([[0, 1]], dtype=torch.int32))
        assert torch.equal(mesh["b"].mesh, torch.tensor([0, 1], dtype=torch.int32))

    run_ranks(2, body)


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


def test_abort_breaks_the_groups_of_a_mesh_and_no_others():
    start = threading.Barrier(4)

    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        line = mesh["dp"]
        for group in (*mesh.get_all_groups(), None):
            dist.barrier(group)
        start.wait(LIMIT)
        if rank == 0:
            line.abort()
        if rank in (0, 2):
            with pytest.raises(dist.DistBackendError, match=r"DeviceMesh\.abort\(\)"):
                dist.barrier(line.get_group())
        assert total(mesh.get_group("tp")) == (1 if rank < 2 else 5)
        DeviceMesh("cpu", [0, 1], _init_backend=False).abort()  # has none
        return total(None)

    assert run_ranks(4, body) == [6] * 4


def test_a_mesh_knows_where_it_comes_from():
    def body(rank):
        mesh = cube()
        part = mesh["b"]
        assert part._get_root_mesh() is mesh is mesh._get_root_mesh()
        assert (part._get_root_mesh_dim(), mesh._get_root_mesh_dim()) == (1, None)
        assert mesh._get_mesh_dim_by_name("c") == 2
        with pytest.raises(KeyError, match="'q' does not exist"):
            mesh._get_mesh_dim_by_name("q")
        lines = mesh["a", "b"]._get_all_submeshes("a")
        assert sum(line.get_coordinate() is not None for line in lines) == 1
        mine = next(line for line in lines if line._is_current_rank_part_of_mesh())
        assert mine.get_group() is mesh.get_group("a")
        return [line.mesh.tolist() for line in lines]

    even, odd = [[0, 4], [2, 6]], [[1, 5], [3, 7]]
    assert run_ranks(8, body) == [even, odd] * 4


def test_a_mesh_has_no_group_that_was_destroyed():
    def body(rank):
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "b"))
        group = mesh.get_group("a")
        dist.destroy_process_group(group)
        with pytest.raises(RuntimeError, match="Could not resolve the process group"):
            mesh.get_group("a")
        return mesh.get_group("b") is dist.group.WORLD

    assert run_ranks(2, body) == [True, True]
