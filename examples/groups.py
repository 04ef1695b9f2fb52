"""Some of the ranks: a group by its members, and a mesh that has a group per row.

allhands run --nproc-per-node 4 examples/groups.py
"""

import numpy as np

import allhands as dist


def sum_of_ranks(group):
    """The members' global ranks, added up."""
    array = np.array([dist.get_rank()])
    dist.all_reduce(array, group=group)
    return array[0]


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()

    # Every rank calls new_group, members or not, and only members use the group.
    evens = dist.new_group(list(range(0, size, 2)))
    if rank % 2 == 0:
        place = f"rank {dist.get_rank(evens)} of {dist.get_world_size(evens)} evens"
        print(f"{place}, whose sum is {sum_of_ranks(evens)}")

    # A grid of ranks, say copies of a model ("dp") that is cut in two ("tp"): each rank
    # is in one group along every dimension.
    width = 2 if size % 2 == 0 else 1
    names = ("dp", "tp")
    mesh = dist.init_device_mesh("cpu", (size // width, width), mesh_dim_names=names)
    sums = {name: int(sum_of_ranks(mesh.get_group(name))) for name in names}
    print(f"at {mesh.get_coordinate()} of {mesh.shape}, sums {sums}")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
