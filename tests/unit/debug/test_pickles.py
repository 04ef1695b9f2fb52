"""Records as torch's analyser reads them."""

import pathlib
import pickle
import subprocess
import sys
import threading
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.debug.job_record import read_job
from allhands.debug.pickles import write_pickles
from harness.ranks import run_ranks

_COMMAND = pathlib.Path(sys.executable).with_name("torchfrtrace")


def test_torchs_analyser_reads_what_we_write(tmp_path):
    pytest.importorskip("torch.distributed.flight_recorder.fr_trace")

    def body(rank):
        pair = dist.new_group([0, 2])
        dist.barrier()
        dist.scan(np.ones(3), np.ones(3))
        if rank != 1:
            dist.all_reduce(np.ones(3), group=pair)
            with pytest.raises(dist.DistBackendError):
                dist.broadcast(np.ones(2), 0, timeout=timedelta(seconds=0.1))
        dist.debug.dump(tmp_path / f"rank_{rank}.json")
        all_have_told.wait(100)

    all_have_told = threading.Barrier(3)
    run_ranks(3, body)
    write_pickles(read_job([tmp_path]).dumps, str(tmp_path / "torch"))
    given = ["--prefix", "rank_", "--output", tmp_path / "found", tmp_path / "torch"]
    done = subprocess.run([_COMMAND, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "found", "rb") as file:
        found = pickle.load(file)[1].collectives
    assert [(c.collective_name, c.missing_ranks or set()) for c in found] == [
        ("gloo:barrier", set()),
        ("gloo:all_reduce", set()),
        ("gloo:all_reduce", set()),
        ("gloo:broadcast", {1}),
    ]
