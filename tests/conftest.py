"""What holds for every test.

Tests send SIGINT, SIGQUIT and SIGHUP to the processes that they start. A job in the
background of a script, or under nohup, ignores these signals, and so would what it
starts: they act as usual again.
"""

import signal

import pytest

from harness import pace

signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def measured_pace():
    """What `harness.pace.patient` needs."""
    pace.start()
    yield
    pace.end()
