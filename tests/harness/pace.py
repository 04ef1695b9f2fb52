"""How fast this machine runs a process, so that limits on time measure the product.

A test that says "within a second" is about an idle machine. Elsewhere a process waits
for a CPU, unnoticed by the clock: other tests run, other users, other virtual machines.
A process of its own, which only sleeps a little and computes a little, measures that
all the time; `patient` stretches a limit by what this one lost.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

SLEEP_S = 0.03
WORK_S = 0.0005  # of CPU time; with the sleep, less than 2 % of one CPU

# Answers each line, a moment, with (CPU seconds, seconds that these took) since then.
# That it wakes up late counts, for so do ranks.
_PROGRAM = """
import collections, select, sys, time

sleep_s, work_s = map(float, sys.argv[1:])
turns = collections.deque(maxlen=10_000)  # (end, CPU seconds, seconds)

def work():
    before = time.thread_time()
    while (spent := time.thread_time() - before) < work_s:
        pass
    return spent

end = time.monotonic()
print("ready", flush=True)
while True:
    left = max(0, end + sleep_s - time.monotonic())
    ready, _, _ = select.select([sys.stdin], [], [], left)
    due = min(end + sleep_s, time.monotonic())
    spent = work()
    end = time.monotonic()
    turns.append((end, spent, end - due))
    if ready:
        line = sys.stdin.readline()
        if not line:
            break
        since = float(line)
        found = [turn[1:] for turn in turns if turn[0] > since]
        print(*map(sum, zip(*found)), flush=True)
"""


class Pace:
    """The measuring process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", _PROGRAM, str(SLEEP_S), str(WORK_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()  # it runs now

    def slowdown(self, since: float) -> float:
        """How many times as long as by itself a process took, from `since` to now."""
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(f"{since!r}\n")
            self._process.stdin.flush()
            spent, took = map(float, self._read().split())
        return took / spent

    def end(self) -> None:
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


_pace: list[Pace] = []


def start() -> None:
    """Measure from now on; before the first `patient`."""
    _pace.append(Pace())


def end() -> None:
    _pace.pop().end()


def patient(seconds: float, since: float) -> float:
    """The limit itself; longer where processes wait for a CPU more than half the time.

    Args:
        seconds: the limit on a machine that has nothing else to do but this suite.
        since: when what is limited began, by `time.monotonic()`.
    """
    return seconds * max(1.0, _pace[-1].slowdown(since) / 2)


if __name__ == "__main__":
    start()
    for _ in range(5):
        now = time.monotonic()
        time.sleep(1)
        print(f"{_pace[-1].slowdown(now):.2f}")
    end()
