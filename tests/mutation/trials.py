"""Trials: runs tests on mutants, those that come by them.

A test is a program of the core, by its name, or a test file of Python. What it does on
the code as it is, its Baseline, is measured once, when it is first wanted: how long it
takes, and which mutants it comes by.
"""

import collections
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass

from workplace import ROOT, RULES, run

_PYTEST = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
_HANG = 120  # seconds of one test, in a file of them
_LIMIT = 1200  # seconds of a Baseline
_SKIPPED = 77  # what a program of the core ends with that cannot run here
# Of pytest: all passed; there was nothing to run.
_PASSES = {True: (0, _SKIPPED), False: (0, 5)}
_FAILED = r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$"  # a line of its summary
# The last test that it began and did not end, where it crashed.
_CRASHED = r"^(tests/\S+::.*?) (?:Fatal Python error.*)?$(?![\s\S]*^tests/\S+::)"


@dataclass
class Baseline:
    """What a test does on the code as it is."""

    test: str
    text: str  # a digest of its own
    passes: bool
    seconds: float
    reached: list[int]
    spared: list[str]  # what of a file fails as it is, so is left out


class Trials:
    """Runs tests on the mutants in a folder; several threads may use it at once.

    Args:
        folder: where `hook` finds them, and what was measured is kept.
        limit: seconds for a mutant.
        core: what has the programs of the core.
    """

    def __init__(self, folder, limit, core=None):
        self._folder = folder
        self._limit = limit
        self._core = core
        self._record = folder / "baselines.jsonl"
        self._measuring = collections.defaultdict(threading.Lock)
        known = self._record.read_text().splitlines() if self._record.exists() else []
        found = (Baseline(**json.loads(line)) for line in known)
        self._baselines = {each.test: each for each in found if each.passes}

    def judge(self, number, tests):
        """(what notices a mutant, or "", whether there was time for all tests).

        A test that fails notices it if it fails twice, and then not on the code as it
        is.
        """
        left = self._limit
        for test in tests:
            baseline = self._baseline(test)
            is_useful = baseline.passes or baseline.spared
            if not is_useful or number not in baseline.reached:
                continue
            if left < 0:
                return "", False
            begin = time.monotonic()
            failed = self._failed(number, baseline)
            if (
                failed
                and self._fails(number, failed, baseline)
                and not self._fails(0, failed, baseline)
            ):
                return failed, True
            left -= time.monotonic() - begin
        return "", True

    def _baseline(self, test):
        with self._measuring[test]:
            known = self._baselines.get(test)
            if known is None or known.text != _digest(test):
                known = self._measure(test)
                if not known.passes:  # as some do once, where others run beside them
                    known = self._measure(test)
                self._baselines[test] = known
                with self._record.open("a") as file:
                    print(json.dumps(asdict(known)), file=file)
            return known

    def _measure(self, test):
        begin = time.monotonic()
        passes, marks, spared = False, b"", []
        if not _is_program(test) or self._core.build_program(test):
            begin = time.monotonic()
            with tempfile.NamedTemporaryFile() as file:
                file.truncate(4096)
                code, output = self._run([test], _LIMIT, MUTANTS_REACHED=file.name)
                spared, marks = re.findall(_FAILED, output, re.MULTILINE), file.read()
                passes = code in _PASSES[_is_program(test)]
        seconds = round(time.monotonic() - begin, 1)
        told = f"FAILS {' '.join(spared)}" if not passes else "passes"
        print(f"{test}: {told}, {seconds} s", flush=True)
        numbers = [number for number, mark in enumerate(marks) if mark]
        return Baseline(test, _digest(test), passes, seconds, numbers, spared)

    def _failed(self, number, baseline):
        """What of a test fails on a mutant: one of a file, or the whole; or ""."""
        test = baseline.test
        tried = [test, "-x", *(f"--deselect={name}" for name in baseline.spared)]
        tried = [test] if _is_program(test) else tried
        code, output = self._run(tried, _patience(baseline), MUTANT=str(number))
        if code in _PASSES[_is_program(test)]:
            return ""
        found = re.findall(_FAILED, output, re.MULTILINE)
        found = found or re.findall(_CRASHED, output, re.MULTILINE)
        return test if _is_program(test) or not found else found[0]

    def _fails(self, number, failed, baseline):
        code, _ = self._run([failed], _patience(baseline), MUTANT=str(number))
        return code not in _PASSES[_is_program(baseline.test)]

    def _run(self, tried, limit, **environment):
        command = [*_PYTEST, "-o", f"timeout={_HANG}", *tried]
        if _is_program(tried[0]):
            command = [self._core.program(tried[0])]
        path = os.pathsep.join(filter(None, [f"{RULES}/hook", os.getenv("PYTHONPATH")]))
        environment |= {"MUTANTS": str(self._folder), "PYTHONPATH": path}
        return run(command, limit, environment)


def _patience(baseline):
    """Seconds after which a test is taken to hang: others may run beside it."""
    return 60 + 4 * baseline.seconds


def _is_program(test):
    return ".py" not in test


def _digest(test):
    path = ROOT / (f"csrc/tests/{test}.cpp" if _is_program(test) else test)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
