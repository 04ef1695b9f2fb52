"""A store of torch's as what the ranks of a world meet in; ranks are threads."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.ranks import GROUP_LIMIT, run_ranks

torch_dist = pytest.importorskip("torch.distributed")

LIMIT = timedelta(seconds=GROUP_LIMIT)


def _file(tmp_path):
    return torch_dist.FileStore(str(tmp_path / "store"), -1)


def _tcp(tmp_path):
    return torch_dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=LIMIT)


def _prefix(tmp_path):
    return torch_dist.PrefixStore("mine", torch_dist.HashStore())


@pytest.mark.parametrize("make", [_file, _tcp, _prefix])
def test_ranks_meet_in_it(tmp_path, make):
    store = make(tmp_path)

    def body(rank):
        dist.init_process_group(store=store, rank=rank, world_size=2, timeout=LIMIT)
        total = np.array([rank + 1])
        dist.all_reduce(total)
        dist.all_reduce(total, group=dist.new_group([1, 0]))
        dist.destroy_process_group()
        return total.tolist()

    assert run_ranks(2, body, init=False) == [[6], [6]]
