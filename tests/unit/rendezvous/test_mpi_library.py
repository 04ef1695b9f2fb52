"""Whether there is an MPI library is answered, whatever becomes of who looks for it."""

import subprocess
import sys

import pytest

from allhands.rendezvous import mpi_library, trial


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """mpi4py is installed, and no library loaded."""
    monkeypatch.setattr(mpi_library, "why_no_mpi", str)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("", ""),
        ("print('no library')", "mpi4py is installed, but: no library"),
        ("raise SystemExit(3)", "exit code 3 of the process that tried"),
        ("import sys; sys.stdin.read(); 1 / 0", "exit code 1 of the process"),
    ],
)
def test_what_the_process_says(monkeypatch, source, told):
    monkeypatch.setattr(mpi_library, "_SEARCH", source)
    problem = mpi_library.why_no_mpi_library()
    assert told in problem
    assert bool(told) == bool(problem)


def test_a_process_that_does_not_end(monkeypatch):
    monkeypatch.setattr(mpi_library, "_SEARCH", "import signal; signal.pause()")
    monkeypatch.setattr(trial, "_LONGEST", 0.2)
    assert "did not end within 0.2 s" in mpi_library.why_no_mpi_library()


def test_no_process_can_be_started(monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert "Resource temporarily" in mpi_library.why_no_mpi_library()
