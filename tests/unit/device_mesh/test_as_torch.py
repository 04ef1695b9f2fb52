"""Meshes in torch's words: texts, order of checks, private names of libraries."""

import pytest

import allhands as dist
from allhands import device_mesh
from allhands.device_mesh import DeviceMesh, init_device_mesh
from harness.ranks import run_ranks

NAMES = ("pp", "dp", "tp")


def test_a_dimension_of_one_rank_has_no_stride():
    def body(rank):
        mesh = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=NAMES)
        text = "DeviceMesh((pp=1, dp=2, tp=2), 'cpu', stride=((), 2, 1))"
        assert repr(mesh) == text
        assert repr(mesh["pp"]) == "DeviceMesh((pp=1), 'cpu', stride=((),))"
        cut = mesh.unflatten("dp", (2, 1), ("q", "r"))
        assert repr(cut).endswith("stride=((), 2, (), 1))")

    run_ranks(4, body)


def test_a_dimension_of_one_rank_may_stand_anywhere_in_a_slice():
    def body(rank):
        mesh = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=NAMES)
        assert mesh["tp", "pp"].shape == (2, 1)
        assert mesh["tp", "pp"].get_group("tp") is mesh.get_group("tp")
        with pytest.raises(KeyError, match="ascending order"):
            mesh["tp", "dp"]

    run_ranks(4, body)


def test_the_order_of_a_slice_is_checked_before_overlaps():
    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        mesh.flatten("both")
        with pytest.raises(KeyError, match="ascending order"):
            mesh["both", "dp"]
        for names in ("dp", "both"), ("both", "tp"), ("dp", "dp"):
            with pytest.raises(RuntimeError, match="overlapping dim_names"):
                mesh[names]

    run_ranks(4, body)


def test_flatten_returns_the_same_mesh_again():
    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        flat = mesh._flatten()
        assert mesh._flatten() is flat
        assert mesh["dp", "tp"]._flatten("dp_tp") is flat
        assert mesh._flatten("other") is not flat
        assert mesh["dp"]._flatten_mapping == {
            "dp_tp": flat,
            "other": mesh.flatten("other"),
        }

    run_ranks(4, body)


@pytest.mark.parametrize(
    ("dim", "sizes", "text"),
    [
        (3, (2, 2), "dim 3 specified in `_unflatten` is out of range 1"),
        ("x", (2, 2), r"dim x specified in `_unflatten` is not in \('w',\)"),
        (0, (2, 3), r"mesh_sizes=\(2, 3\) is 6, but the original dimension at dim=0"),
    ],
)
def test_unflatten_refuses_in_torchs_words(dim, sizes, text):
    def body(rank):
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("w",))
        with pytest.raises(ValueError, match=text):
            mesh._unflatten(dim, sizes, ("a", "b"))

    run_ranks(4, body)


def test_meshes_answer_to_the_private_names_of_torch():
    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        groups = [mesh.get_group("dp"), mesh.get_group("tp")]
        assert mesh._dim_group_names == [group.group_name for group in groups]
        assert mesh["tp"]._rank_map.tolist() == [0, 1, 2, 3]
        assert DeviceMesh("cpu", [3], _init_backend=False)._dim_group_names == []
        return mesh._coordinate_on_dim

    assert run_ranks(4, body) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_meshes_of_with_blocks_are_known_under_torchs_name():
    def body(rank):
        resources = device_mesh._mesh_resources
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        with mesh:
            assert resources.mesh_stack == [mesh]
            assert resources.get_current_mesh() is mesh
        assert resources.get_root_mesh(mesh["dp"]) is mesh
        with pytest.raises(RuntimeError, match="No device mesh is currently active"):
            resources.get_current_mesh()
        return dist.get_rank()

    assert run_ranks(2, body) == [0, 1]
