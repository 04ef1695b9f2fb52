"""How the pages' programs find each other: URLs, the environment, a store, spawn."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import allhands as dist
from allhands.groups.world import World, use
from harness.launcher import environment
from harness.ports import reserved_port
from harness.ranks import LIMIT, run_ranks


@pytest.fixture
def free_port():
    with reserved_port() as port:
        yield port


def meet(**options):
    """All-reduce 1 over the world that these arguments lead to; then leave it."""
    dist.init_process_group("gloo", **options)
    one = np.ones(1)
    dist.all_reduce(one)
    assert dist.is_initialized()
    dist.destroy_process_group()
    assert not dist.is_initialized()
    return one[0]


def test_tcp_url(free_port):
    url = f"tcp://127.0.0.1:{free_port}"

    def body(rank):
        return meet(init_method=url, rank=rank, world_size=4)

    assert run_ranks(4, body, init=False) == [4.0] * 4


def test_file_url(tmp_path):
    url = f"file://{tmp_path}/sharedfile"

    def body(rank):
        return meet(init_method=url, world_size=4, rank=rank)

    assert run_ranks(4, body, init=False) == [4.0] * 4


def test_a_store_of_our_own():
    store = dist.HashStore()

    def body(rank):
        return meet(store=store, rank=rank, world_size=2)

    assert run_ranks(2, body, init=False) == [2.0] * 2


def test_the_same_file_again_after_destroy(tmp_path):
    """The page warns of deadlocks where a file is used again; ours may be."""
    url = f"file://{tmp_path}/sharedfile"

    def body(rank):
        return [meet(init_method=url, world_size=2, rank=rank) for _ in range(3)]

    assert run_ranks(2, body, init=False) == [[2.0] * 3] * 2


def run(tmp_path, program, **variables):
    """What a program of its own prints, sorted; it ends well."""
    path = tmp_path / "run.py"
    path.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, path],
        env=environment(ALLHANDS_REPLACE_GLOO="1", **variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


TEMPLATE = """
    import os
    import sys
    import multiprocessing as mp
    import numpy as np
    import allhands as dist

    def run(rank, size):
        tensor = np.ones(1)
        dist.all_reduce(tensor)
        sys.stdout.write(f"rank {{rank}} of {{size}}: {{tensor.tolist()}}\\n")
        sys.stdout.flush()

    def init_process(rank, size, fn, backend="gloo"):
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = "{port}"
        dist.init_process_group(backend, rank=rank, world_size=size)
        fn(rank, size)

    if __name__ == "__main__":
        mp.set_start_method("{method}")
        ranks = [mp.Process(target=init_process, args=(r, 2, run)) for r in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        assert [rank.exitcode for rank in ranks] == [0, 0]
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_the_tutorials_template(tmp_path, free_port, method):
    program = TEMPLATE.format(port=free_port, method=method)
    assert run(tmp_path, program) == ["rank 0 of 2: [2.0]", "rank 1 of 2: [2.0]"]


SPAWN = """
    import sys
    import torch
    import torch.multiprocessing as mp
    import allhands as dist

    def setup(rank, world_size):
        dist.init_process_group(
            backend="gloo",
            init_method="tcp://127.0.0.1:{port}",
            world_size=world_size,
            rank=rank,
        )

    def demo_basic(rank, world_size):
        setup(rank, world_size)
        tensor = torch.ones(2, 2)
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
        sys.stdout.write(f"Rank {{rank}}: {{tensor.tolist()}}\\n")
        sys.stdout.flush()
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(demo_basic, args=(2,), nprocs=2)
"""


def test_mp_spawn(tmp_path, free_port):
    pytest.importorskip("torch")
    twos = [[2.0, 2.0], [2.0, 2.0]]
    lines = [f"Rank 0: {twos}", f"Rank 1: {twos}"]
    assert run(tmp_path, SPAWN.format(port=free_port)) == lines


def test_nccl_of_the_gpu_examples_is_refused_by_name():
    with use(World()), pytest.raises(RuntimeError, match="NCCL"):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)


def test_backend_names():
    assert dist.Backend("GLOO") == dist.Backend.GLOO == "gloo"
    assert dist.Backend.NCCL == "nccl"
    assert dist.is_available()
    assert dist.is_gloo_available()


def test_questions_after_initialization():
    def body(rank):
        assert dist.get_backend() == "gloo"
        return dist.get_rank(), dist.get_world_size()

    assert run_ranks(3, body, backend="gloo") == [(0, 3), (1, 3), (2, 3)]
