import sys
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import pytest

import allhands as dist
from allhands.rendezvous import mpi_job
from allhands.rendezvous.mpi_library import library_name, why_no_mpi

RANK_OF_TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_FD": "9", "MPI_LOCALRANKID": "1"}
OPEN_MPI = {"PMIX_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}


def alone(version):
    return SimpleNamespace(
        COMM_WORLD=SimpleNamespace(Get_size=lambda: 1),
        Get_library_version=lambda: version,
    )


def test_a_rank_of_another_launcher_is_told_how_to_start():
    with pytest.raises(RuntimeError, match=r"rank 1 of 4 that another .*-n 4"):
        mpi_job._check_start(RANK_OF_TORCHRUN)


@pytest.mark.parametrize("marks", [MPICH, OPEN_MPI])
def test_a_rank_of_mpis_launchers_may_have_such_variables_too(marks):
    mpi_job._check_start({**RANK_OF_TORCHRUN, **marks})


def test_a_program_that_nobody_launched_is_fine():
    mpi_job._check_start({})
    mpi_job._check_start({"WORLD_SIZE": "1", "RANK": "0"})


@pytest.mark.parametrize("marks", [MPICH, OPEN_MPI])
def test_mpiexec_of_another_mpi_is_told_of(marks):
    with pytest.raises(RuntimeError, match=r"started 4 ranks.* of another MPI\. Use"):
        mpi_job._check_library(alone("Open MPI v5.0.11, package: x"), marks)


def test_one_rank_of_one_is_fine():
    mpi_job._check_library(alone("MPICH"), {"PMI_SIZE": "1"})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("MPICH Version:      5.0.2\nMPICH Release date: x", "MPICH 5.0.2"),
        ("Open MPI v5.0.11, package: Open MPI user@host\0", "Open MPI v5.0.11"),
    ],
)
def test_the_librarys_name_is_short(text, name):
    assert library_name(alone(text)) == name


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mpi_job, "_job", None)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr(mpi_job, "why_no_mpi", lambda: "mpi4py is not installed")
    with pytest.raises(RuntimeError, match='backend "mpi": mpi4py is not installed'):
        dist.init_process_group("mpi")
    assert not dist.is_initialized()


class LateWorld:
    """Ranks of which one comes only when it is asked for the second time."""

    num_copies = 0

    def Idup(self):
        self.num_copies += 1
        world = SimpleNamespace(Set_errhandler=lambda _: None)
        return world, SimpleNamespace(Test=lambda: self.has_come)

    has_come = False
    Get_rank = staticmethod(lambda: 1)
    Get_size = staticmethod(lambda: 4)


def test_ranks_that_do_not_come_are_waited_for_to_the_limit(monkeypatch):
    monkeypatch.setattr(mpi_job, "_begun_copy", None)
    world = LateWorld()
    mpi = SimpleNamespace(COMM_WORLD=world, ERRORS_RETURN=None)
    limit = timedelta(seconds=0.05)
    with pytest.raises(dist.DistStoreError, match=r"rank 1 .* waited 0\.05 s .* the 4"):
        mpi_job._copy_of_world(mpi, limit)
    world.has_come = True
    assert mpi_job._copy_of_world(mpi, limit) is not None
    assert world.num_copies == 1, "MPI counts them: the others make one"


def test_the_limit_of_the_call_is_that_of_the_wait(monkeypatch):
    limits = []
    monkeypatch.setattr(mpi_job, "_job", None)
    monkeypatch.setattr(mpi_job, "why_no_mpi", lambda: "")
    monkeypatch.setattr(mpi_job, "_check_start", lambda environment: None)
    monkeypatch.setattr(mpi_job, "_begin", limits.append)
    with pytest.raises(AttributeError):  # such a job has no rank
        dist.init_process_group("mpi", timeout=timedelta(seconds=10))
    assert timedelta(seconds=9) < limits[0] <= timedelta(seconds=10)


def test_what_is_installed_is_told():
    assert why_no_mpi() == "" or "pip install mpi4py" in why_no_mpi()


def test_a_request_is_asked_until_it_ends_or_the_time_is_over():
    job = SimpleNamespace(lock=nullcontext())
    answers = [True, False, False]
    assert mpi_job._ends(job, answers.pop, timedelta(minutes=1))
    assert answers == []
    assert not mpi_job._ends(job, lambda: False, timedelta(0))
