"""Workplace: where a run keeps what it makes and finds, and how it starts processes."""

import contextlib
import hashlib
import os
import pathlib
import signal
import subprocess
import threading

ROOT = pathlib.Path(__file__).parents[2]
RULES = pathlib.Path(__file__).parent
_stopped = threading.Event()
_going = set()


def tree_of(*names):
    """A short word for what the last commit has under some names."""
    asked = ["git", "rev-parse", *(f"HEAD:{name}" for name in names)]
    told = subprocess.check_output(asked, cwd=ROOT)
    return hashlib.sha256(told).hexdigest()[:12]


# Mutants are the same as long as what they are made of is.
_TOOL = [
    f"tests/mutation/{name}" for name in ("mutants.py", "python.rules", "cpp.rules")
]
FOLDER = ROOT / "build/mutation" / tree_of("src", "csrc/allhands", *_TOOL)


def run(command, limit, environment=()):
    """(exit code, output) of it; what it started ends with it. None: not in time."""
    if _stopped.is_set():
        raise InterruptedError("the run was stopped")
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **dict(environment)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        _going.add(process)
        try:
            output, _ = process.communicate(timeout=max(limit, 1))
            result = process.returncode, output
        except subprocess.TimeoutExpired:
            result = None, ""
        finally:
            _going.discard(process)
            _end(process, signal.SIGKILL)
    if _stopped.is_set():
        raise InterruptedError("the run was stopped")  # what it said means nothing
    return result


def stop():
    """End what `run` runs in other threads; it raises there."""
    _stopped.set()
    for process in list(_going):
        _end(process, signal.SIGTERM)  # a build ends its compilers, which are no part


def _end(process, by):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, by)
