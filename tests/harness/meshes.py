"""The mesh that most tests of meshes use."""

from allhands.device_mesh import init_device_mesh

NAMES = ("a", "b", "c")


def cube():
    """2 x 2 x 2 ranks."""
    return init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=NAMES)
