"""Simulated ranks of several hosts meet two real ones, in benchmarks/meeting.py."""

import re
import subprocess
import sys

import pytest

from harness.documents import ROOT
from harness.ranks import LIMIT

HOSTS, RANKS = 4, 8
OF_A_RANK = 2  # its requests', and its last will's


# The time that this takes is not held here: the machine may be busy.
@pytest.mark.parametrize(
    ("options", "connections"),
    [
        ([], OF_A_RANK * RANKS + HOSTS - 1),
        (["--no-relays"], OF_A_RANK * RANKS * HOSTS),
    ],
    ids=["relays", "no relays"],
)
def test_ranks_meet_over_few_connections_to_the_server(options, connections):
    size = [f"--hosts={HOSTS}", f"--ranks={RANKS}"]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "meeting.py", *size, *options],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stderr == ""
    found = re.search(r"for ([\d,]+) connections, ([\d,]+) requests", done.stdout)
    assert int(found[1]) == connections
    assert int(found[2]) < 20 * HOSTS * RANKS  # those of a rank, as for any number
