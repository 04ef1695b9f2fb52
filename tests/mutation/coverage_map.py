"""CoverageMap: which test files run which line of the package, in their processes too.

Made once per commit, where a mutant survives the tests near it: every test file by
itself under coverage, which takes as long as all tests one after the other. What was
measured is kept in build/mutation, so a run that was cut short goes on.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).parents[2]
COMMIT = subprocess.check_output(
    ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True
).strip()
FOLDER = ROOT / "build" / "mutation" / COMMIT
LIMIT = 1800  # seconds for one test file

# What measures or draws.
_SPARED = ("tests/unit/bench/", "tests/process/test_bench.py")

_SETTINGS = """
[run]
parallel = true
data_file = {folder}/data
source = {root}/src
concurrency = thread,multiprocessing
patch = subprocess,_exit,fork
sigterm = true
context = ${{MUTATION_TEST}}
"""


class CoverageMap:
    """Test files by line, and how each of them ended and how long it took."""

    def __init__(self):
        self._lines = json.loads((FOLDER / "lines.json").read_text())
        self._ended = _ended()

    def tests_of(self, path, line):
        """The test files that run a line of a Python file."""
        return self._lines.get(str(path.relative_to(ROOT)), {}).get(str(line), [])

    def seconds(self, test):
        return self._ended[test]["seconds"] if test in self._ended else 0.0

    def passes(self, test):
        """Whether the test file passed on the code as it is."""
        return test not in self._ended or self._ended[test]["code"] == 0


def make(jobs):
    """Measure what was not measured yet, and write the map."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    settings = _SETTINGS.format(root=ROOT, folder=FOLDER)
    (FOLDER / "coverage.rc").write_text(settings)
    listed = subprocess.check_output(["git", "ls-files", "tests"], cwd=ROOT, text=True)
    done = _ended()
    tests = [
        name
        for name in listed.split()
        if pathlib.Path(name).match("test_*.py")
        and not name.startswith(_SPARED)
        and name not in done
    ]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(_measure, tests))
    if tests or not (FOLDER / "lines.json").exists():
        _write_lines()


def _ended():
    path = FOLDER / "ended.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {entry["test"]: entry for entry in map(json.loads, lines)}


def _measure(test):
    command = ["-m", "coverage", "run", f"--rcfile={FOLDER}/coverage.rc", "-m"]
    begin = time.monotonic()
    try:
        code = subprocess.run(
            [sys.executable, *command, "pytest", "-q", "-p", "no:cacheprovider", test],
            cwd=ROOT,
            env={**os.environ, "MUTATION_TEST": test},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        code = None
    seconds = round(time.monotonic() - begin, 1)
    print(f"{test}: {'passes' if code == 0 else 'FAILS'} in {seconds} s", flush=True)
    with (FOLDER / "ended.jsonl").open("a") as file:
        print(json.dumps({"test": test, "code": code, "seconds": seconds}), file=file)


def _write_lines():
    import coverage

    measured = coverage.Coverage(config_file=str(FOLDER / "coverage.rc"))
    measured.combine(keep=True)
    data = measured.get_data()
    lines = {
        str(pathlib.Path(name).relative_to(ROOT)): {
            line: sorted(filter(None, tests))
            for line, tests in data.contexts_by_lineno(name).items()
        }
        for name in data.measured_files()
    }
    (FOLDER / "lines.json").write_text(json.dumps(lines))
