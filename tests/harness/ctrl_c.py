"""Ctrl-C to this process."""

import os
import signal
import threading
import time

import pytest

from harness.pace import patient


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
