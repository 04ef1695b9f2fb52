"""A job whose ranks are where they should not be is not measured."""

import pytest

from allhands.bench.fake_hosts import FakeHosts
from allhands.bench.job import Job, JobError


class Named:
    """Stands for hosts: their names, and whose rank is on which."""

    host_of = FakeHosts.host_of

    def __len__(self):
        return 2

    def __getitem__(self, number):
        self.name = f"host{number}"
        return self


def test_a_rank_on_the_wrong_host_is_named(tmp_path):
    job = Job("mpi", 4, tmp_path, {}, Named())
    (tmp_path / "output").write_text("what it printed\n")
    try:
        for rank, place in enumerate(["host0", "host0", "host1", "host1"]):
            job._check(rank, place)
        with pytest.raises(
            JobError, match=r"^mpi: rank 2 runs on host0; want host1\nwhat it printed$"
        ):
            job._check(2, "host0")
    finally:
        job.leave()
