"""What holds for every test.

Ranks that wait for others say so on stderr after some seconds, which a busy machine may
take to start the others: not here, where tests hold what is written there. Neither is
the engine fitted to the machine: tests hold which way data goes.

NumPy's matrix products get no threads of their own: no test needs them, and every
process that imports NumPy would start them, for a seventh of what the import takes.

Tests send SIGINT, SIGQUIT and SIGHUP to the processes that they start. A job in the
background of a script, or under nohup, ignores these signals, and so would what it
starts: they act as usual again.
"""

import os
import signal

import hypothesis
import pytest

from harness import pace

# On a busy machine any case may take seconds; tests have a limit as a whole.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")

os.environ["ALLHANDS_PATIENCE"] = "0"
os.environ["ALLHANDS_CALIBRATION"] = "no"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def measured_pace():
    """What `harness.pace.patient` needs."""
    pace.start()
    yield
    pace.end()
