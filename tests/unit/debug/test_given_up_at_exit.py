"""A process that ends while it tells ranks of other hosts why it gave up."""

import subprocess
import sys

import pytest

PROGRAM = """
from datetime import timedelta
from allhands import TCPStore
from allhands.debug import given_up
store = TCPStore("127.0.0.1", 0, 1, True)
limit = timedelta(seconds={})
given_up._within(0.0, lambda: store._get_within("missing", limit))
"""


@pytest.mark.parametrize("seconds", [0.01, 0.02, 0.03])
def test_a_request_that_is_under_way_does_not_abort_the_process(seconds):
    command = [sys.executable, "-c", PROGRAM.format(seconds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
