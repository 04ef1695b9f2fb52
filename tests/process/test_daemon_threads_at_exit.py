"""Daemon threads of a program that are in the core when Python ends."""

import subprocess
import sys

import pytest

from harness.ranks import GROUP_LIMIT

PROGRAM = """
import colorsys, os, sys, threading, time
import allhands

class EndsSlowly:  # Python is ending when this does
    def __init__(self):
        self.status = open(f"/proc/self/task/{threading.get_native_id()}/status")
        self.sleep = time.sleep

    def sleeps(self):  # the line that counts how often the thread has gone to sleep
        self.status.seek(0)
        return [line for line in self.status if line.startswith("voluntary")]

    def __del__(self):
        before = self.sleeps()
        for _ in range(500):
            if self.sleeps() != before:  # it has looked for signals, with the GIL
                return
            self.sleep(0.01)  # unless it did so as soon as Python began to end

def ask():
    colorsys.kept = EndsSlowly()  # until Python takes this module apart
    began.set()
    getattr(store, sys.argv[1])(*eval(sys.argv[2]))

began = threading.Event()
store = allhands.TCPStore("127.0.0.1", 0, is_master=True)
threading.Thread(target=ask, daemon=True).start()
began.wait()
at_request = colorsys.kept.sleeps()
while colorsys.kept.sleeps() == at_request:  # it waits for its answer
    time.sleep(0.01)
"""


@pytest.mark.parametrize("request_", [("get", '("late",)'), ("wait", '(["late"],)')])
def test_one_that_waits_for_an_answer_does_not_abort_the_process(request_):
    command = [sys.executable, "-c", PROGRAM, *request_]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=GROUP_LIMIT)
    assert (ended.returncode, ended.stderr) == (0, "")
