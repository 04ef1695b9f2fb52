"""Tests that need UCX."""

import subprocess
import sys

import pytest

_PROGRAM = """
from allhands.rendezvous.ucx_choice import ucx_version
from allhands import DistBackendError
try:
    ucx_version()
except DistBackendError as error:
    print(error)
"""


def _problem():
    """Why there is no UCX here; in a process of its own, which keeps it loaded."""
    command = [sys.executable, "-c", _PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


_PROBLEM = _problem()
with_ucx = pytest.mark.skipif(bool(_PROBLEM), reason=_PROBLEM or "there is UCX")
