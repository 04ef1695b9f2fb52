"""A process that ends while it tells ranks of other hosts why it gave up."""

import subprocess
import sys

PROGRAM = """
import colorsys
from datetime import timedelta
from time import sleep
from allhands import TCPStore
from allhands.debug import given_up

class EndsSlowly:
    def __del__(self, sleep=sleep):
        sleep(1)  # Python is ending, and the request ends meanwhile

colorsys.kept = EndsSlowly()  # until Python takes this module apart
store = TCPStore("127.0.0.1", 0, 1, True)
limit = timedelta(seconds=0.3)
given_up._within(0.0, lambda: store._get_within("missing", limit))
"""


def test_a_request_that_is_under_way_does_not_abort_the_process():
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
