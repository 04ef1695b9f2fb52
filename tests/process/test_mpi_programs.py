"""The programs for people who come from mpi4py on several numbers of ranks.

tests/house runs them on the number that the page shows, tests/engines on backend mpi.
"""

import pytest

from harness import mpi_programs
from harness.launcher import launch, program


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("name", mpi_programs.NAMES)
def test_a_program_prints_the_same_on_any_number_of_ranks(name, num_ranks, tmp_path):
    path = program(tmp_path, mpi_programs.text(name), name)
    done = launch(f"--nproc-per-node={num_ranks}", path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = mpi_programs.lines_of(name, done.stdout.splitlines())
    assert lines == mpi_programs.printed(name, num_ranks)
