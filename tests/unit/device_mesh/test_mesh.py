"""Device meshes, with ranks as threads."""

import copy
import pickle
import threading
import time

import numpy as np
import pytest

import allhands as dist
from allhands.device_mesh import DeviceMesh, init_device_mesh
from harness.meshes import NAMES, cube
from harness.pace import patient
from harness.ranks import LIMIT, run_ranks
from harness.worlds import total


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
