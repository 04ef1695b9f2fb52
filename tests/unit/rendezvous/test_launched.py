"""Who a process is by the variables of launchers; all of them were recorded."""

import os
import socket
import subprocess
import sys

import pytest

from allhands.rendezvous import launched
from allhands.rendezvous.launched import find_launched, is_alone, rank_without_size
from unit.rendezvous.test_slurm import BATCH, TASK

HYDRA = {
    "PMI_RANK": "1",
    "PMI_SIZE": "4",
    "PMI_FD": "9",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "4",
}
OPEN_MPI = {
    "PMIX_RANK": "5",
    "PMIX_NAMESPACE": "prterun-vm-817@1",
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
SRUN_PMI = {**TASK, "PMI_RANK": "4", "PMI_SIZE": "6", "PMI_FD": "11"}
POD = {"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3"}
PLACE = {
    "hydra": (HYDRA, ("mpiexec", 1, 4, 1, 4)),
    "open mpi": (OPEN_MPI, ("mpiexec", 5, 6, 1, 2)),
    "slurm": (TASK, ("srun", 4, 6, 0, 1)),
    "slurm's pmi": (SRUN_PMI, ("srun", 4, 6, 0, 1)),
    "mpiexec within slurm": ({**TASK, **HYDRA}, ("mpiexec", 1, 4, 1, 4)),
    "kubernetes": (POD, ("Kubernetes", 2, 3, 0, 1)),
}


@pytest.mark.parametrize("case", PLACE)
def test_ranks_of(case):
    environment, expected = PLACE[case]
    found = find_launched(environment)
    local = found.local_rank, found.local_size
    assert (found.launcher, found.rank, found.size, *local) == expected
    assert not is_alone(environment)
    shown = {"LOCAL_RANK": "", "RANK": "17"}
    found.show(shown)
    assert shown.pop("RANK") == "17"
    assert shown == {
        "WORLD_SIZE": str(expected[2]),
        "LOCAL_RANK": str(expected[3]),
        "LOCAL_WORLD_SIZE": str(expected[4]),
    }


@pytest.mark.parametrize("environment", [{}, BATCH, {"RANK": "", "PMI_RANK": "x"}])
def test_nobody_has_launched(environment):
    assert find_launched(environment) is None
    assert is_alone(environment)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_who_is_told_anything_is_not_alone(name):
    assert not is_alone({name: "1"})


@pytest.mark.parametrize(
    "name", ["PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "ALPS_APP_PE"]
)
def test_a_rank_of_nobody_knows_how_many_is_not_alone(name):
    assert not is_alone({name: "0"})
    assert find_launched({name: "0"}) is None
    assert rank_without_size({name: "0"}) == f"{name}=0"
    assert not rank_without_size({**HYDRA, name: "1"})


def test_a_job_of_one_host_is_known_for_one():
    assert find_launched(HYDRA).is_on_one_host
    for environment in (OPEN_MPI, TASK, POD):
        assert not find_launched(environment).is_on_one_host


def test_a_rank_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"rank 4 of 4; the rank must be in \[0, 4\)"):
        find_launched({**HYDRA, "PMI_RANK": "4"})


def test_a_job_is_known_by_the_process_that_started_its_ranks(monkeypatch):
    """Shells between it and the rank have the rank's variables, too."""
    own, parent = os.getpid(), os.getppid()
    seen = []

    def environment_of(pid):
        seen.append(pid)
        return {**HYDRA, "OTHER": "1"} if pid == parent else {}

    monkeypatch.setattr(launched, "_environment_of", environment_of)
    job = find_launched(HYDRA).job
    starter = int(launched._fields_of(parent)[1])
    assert seen == ([parent, starter] if starter else [parent])
    assert job.split(".")[0] == str(starter or parent)
    assert own not in seen
    assert find_launched(OPEN_MPI).job == "prterun-vm-817@1"


OUTER = {
    "another size": {**HYDRA, "PMI_SIZE": "1"},
    "another connection": {**HYDRA, "PMI_FD": "11"},
    "a port": {**HYDRA, "PMI_PORT": "vm:4711"},
    "srun's": {"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_FD": "9"},
}


@pytest.mark.parametrize("case", OUTER)
def test_a_launcher_that_a_rank_has_called_is_no_rank_of_its_own(monkeypatch, case):
    """The variables of the rank that called it stay with it and with its proxy."""
    monkeypatch.setattr(launched, "_environment_of", lambda _: OUTER[case])
    assert find_launched(HYDRA).job.split(".")[0] == str(os.getppid())


def test_hydras_proxy_is_no_rank_whatever_it_has(monkeypatch):
    monkeypatch.setattr(launched, "_environment_of", lambda _: HYDRA)
    monkeypatch.setattr(launched, "_name_of", lambda _: "hydra_pmi_proxy", False)
    assert find_launched(HYDRA).job.split(".")[0] == str(os.getppid())


def test_the_environment_of_a_process_is_read():
    assert launched._name_of(os.getpid())
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=HYDRA) as process:
        found = {}
        while found.get("PMI_RANK") is None:  # until it has become this program
            found = launched._environment_of(process.pid)
        process.communicate(b"\n")
    assert {name: found[name] for name in HYDRA} == HYDRA


def test_kubernetes_has_to_be_told_how_many_pods_there_are():
    with pytest.raises(ValueError, match=r"index 2, but not how .* set WORLD_SIZE"):
        find_launched({"JOB_COMPLETION_INDEX": "2"})


@pytest.mark.parametrize(
    ("own", "first"),
    [
        ("train-2", "train-0"),
        ("train-2.svc.ns.svc.cluster.local", "train-0.svc.ns.svc.cluster.local"),
        ("train-3", ""),
        ("7f9c", ""),
    ],
)
def test_the_first_pod_is_known_by_its_name(monkeypatch, own, first):
    monkeypatch.setattr(socket, "getfqdn", lambda: own)
    assert find_launched(POD).host == first
