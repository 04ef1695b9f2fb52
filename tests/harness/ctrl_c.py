"""Ctrl-C to this process, and to a rank."""

import os
import signal
import threading
import time

import pytest

from harness.pace import patient
from harness.ranks import LIMIT


def check_ctrl_c_ends(call):
    """Hold that it ends `call()`, which waits, within half a second."""
    pressed = []

    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def wait():
        timer = threading.Timer(0.1, press)
        timer.start()
        call()
        timer.cancel()

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert time.monotonic() - pressed[0] < patient(0.5, pressed[0])


def check_ctrl_c_ends_rank_0(job, code):
    """Hold that it ends what rank 0 waits in within half a second, and the rank so.

    `job` is two `Processes`: rank 0 gives the time at which it acted, rank 1 stays.
    """
    time.sleep(0.3)  # until it waits; earlier would only make the test easier
    pressed = time.monotonic()
    job.ranks[0].send_signal(signal.SIGINT)
    job.ranks[0].wait(LIMIT)
    job.ranks[1].kill()
    acted = job.join(codes=[code, -signal.SIGKILL])[0]
    assert acted - pressed < patient(0.5, pressed)
