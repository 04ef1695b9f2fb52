"""Do the tests notice when the code is wrong? Breaks it in many places, one at a time.

    make mutants                             60 mutants of both languages
    python tests/mutation/mutate.py --count 10 --only 'csrc/*/engine/*' --seed 7

A mutant that does not compile, or compiles to the same, is no mutant; another one is
drawn. On each run the tests that may see it, until one fails: twice, and not on the
code as it is. The results are kept in build/mutation, in a folder of this commit, as
they come, and a run that was cut short goes on where it was. At the end stands a table;
fewer than 90 % noticed is a failure.

It changes files in place, one at a time, and puts them back, so the checkout must have
no changes of yours.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import coverage_map
import mutants
import selection
from coverage_map import FOLDER, ROOT, CoverageMap

PYTHON = sys.executable
WANTED = 0.9
HANG = 180  # seconds of one test
# What pytest ends with: all passed; there was nothing to run, as where all that is left
# is flaky; it had to be stopped.
UNNOTICED = (0, 5, None)
FAILED = r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$"  # a line of its summary
# The last test that it began and did not end, where it crashed.
CRASHED = r"^(tests/\S+::.*?) (?:Fatal Python error.*)?$(?![\s\S]*^tests/\S+::)"
PLAIN = ROOT / "build" / "plain"
ORIGINAL = FOLDER / "plain"


def run(command, limit):
    """(exit code, output) of it; what it started ends with it. None: not in time."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # it looks at whole seconds
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=max(limit, 1))
            return process.returncode, output
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class Build:
    """The extension and the core's programs, of the sources as they are and were."""

    def __init__(self):
        command = ["make", "build", "build/plain/build.ninja"]
        code, output = run(command, 7200)
        if code != 0 or not self._make(PLAIN, "all"):
            sys.exit(f"mutate.py: the code does not build:\n{output[-3000:]}")
        [self._extension] = (ROOT / "build").glob("cp*/_C.*.so")
        asked = [PYTHON, "-c", "import allhands; print(allhands._C.__file__)"]
        self._installed = pathlib.Path(run(asked, 60)[1].strip())
        self._original = self._installed.read_bytes()
        self._digest_at_first = self._digest()
        shutil.copytree(PLAIN, ORIGINAL, ignore=_all_but_programs, dirs_exist_ok=True)

    def is_other(self):
        """Build the extension anew; whether that works and makes other code."""
        is_built = self._make(self._extension.parent, "_C")
        return is_built and self._digest() != self._digest_at_first

    def core(self):
        """Build the core's programs; whether that works."""
        return self._make(PLAIN, "all")

    def install(self):
        """Let Python have the extension as it was built last."""
        self._install(self._extension.read_bytes())

    def put_back(self):
        """Let Python have the extension as it was at first."""
        self._install(self._original)

    def _install(self, extension):
        new = self._installed.with_suffix(".new")  # some process may use the old one
        new.write_bytes(extension)
        new.replace(self._installed)

    def _make(self, folder, target):
        command = ["cmake", "--build", folder, "--target", target, "-j", "2"]
        return run(command, 3600)[0] == 0

    def _digest(self):
        digest = hashlib.sha256()
        for path in sorted(self._extension.parent.glob("**/*.o")):
            digest.update(path.read_bytes())
        return digest.hexdigest()


def _all_but_programs(folder, names):
    return [name for name in names if not name.endswith("_test")]


class Examiner:
    """Runs tests on one mutant at a time, for `limit` seconds in all.

    A test notices a mutant if it fails twice on it, and then not on the code as it was.
    """

    def __init__(self, limit):
        self._limit = limit
        self._map = CoverageMap()
        self._build = Build()
        self._end = 0.0

    def examine(self, mutant):
        """What noticed `mutant`; "" where nothing did, None where it is none."""
        if mutant.is_python and not mutant.is_other_python:
            return None
        mutant.path.write_text(mutant.after)
        try:
            if not mutant.is_python and not self._build.is_other():
                return None
            self._end = time.monotonic() + self._limit
            return self._by_python(mutant) if mutant.is_python else self._by_all(mutant)
        finally:
            self._build.put_back()
            mutant.path.write_text(mutant.before)

    def _by_python(self, mutant):
        line = mutant.change()[0]
        tests = selection.tests_of_python(mutant.path, line, self._map)
        return self._pytest(mutant, tests)

    def _by_all(self, mutant):
        programs = selection.programs_of(mutant.path, ORIGINAL)
        if programs and not self._build.core():
            return "the core's programs do not build"
        self._build.install()
        tests = selection.tests_of_core(mutant.path, self._map)
        return self._programs(programs) or self._pytest(mutant, tests)

    def _left(self):
        return self._end - time.monotonic()

    def _programs(self, names):
        for name in names:
            if self._left() < 0:
                break
            runs = [PLAIN / name, PLAIN / name, ORIGINAL / name]
            if [run([path], HANG)[0] == 0 for path in runs] == [False, False, True]:
                return name
        return ""

    def _pytest(self, mutant, tests):
        command = [PYTHON, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider"]
        command += ["-o", f"timeout={HANG}"]
        flaky = []
        while tests and self._left() > 0:
            tried = [*command, *flaky, *tests]
            code, output = run(tried, self._left())
            if code in UNNOTICED:
                break
            failed = first_failed(output)
            if failed:  # or it could not even begin
                tried = [*command, *failed]
            again, _ = run(tried, self._left())
            if again not in UNNOTICED and self._passes_at_first(mutant, tried):
                return failed[0] if failed else f"pytest, which ended with {code}"
            if not failed:
                break
            flaky += ["--deselect", *failed]
        return ""

    def _passes_at_first(self, mutant, command):
        mutant.path.write_text(mutant.before)
        self._build.put_back()
        code, _ = run(command, self._limit)
        mutant.path.write_text(mutant.after)
        if not mutant.is_python:
            self._build.install()
        return code == 0


def first_failed(output):
    """The test that ended a run of pytest, in a list; none where nothing began."""
    failed = re.findall(FAILED, output, re.MULTILINE)
    return failed[:1] or re.findall(CRASHED, output, re.MULTILINE)


def table(results):
    """What became of each, as Markdown."""
    lines = ["| | where | was | is | noticed by |", "|---|---|---|---|---|"]
    for number, result in enumerate(results, 1):
        cells = [result["where"], f"`{result['was']}`", f"`{result['is']}`"]
        told = result["noticed"] or "**nothing**"
        row = " | ".join(cell.replace("|", "\\|") for cell in [*cells, told])
        lines.append(f"| {number} | {row} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="*", help="a pattern of file names")
    parser.add_argument("--limit", type=int, default=1500, help="seconds for a mutant")
    given = parser.parse_args()
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        sys.exit("mutate.py: the checkout has changes; commit or stash them first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("mutate.py: terminated"))
    coverage_map.make(jobs=2)
    examiner = Examiner(given.limit)
    name = re.sub(r"\W+", "-", f"{given.only}-seed-{given.seed}").strip("-")
    record = FOLDER / f"{name}.jsonl"
    known = record.read_text().splitlines() if record.exists() else []
    draws = {entry["draw"]: entry for entry in map(json.loads, known)}
    results, changes = [], set()
    files = mutants.sources(given.only)
    number = 0
    while len(results) < given.count:
        number += 1
        if number not in draws:
            draws[number] = judge(examiner, mutants.draw(files, given.seed, number))
            draws[number]["draw"] = number
            with record.open("a") as file:
                print(json.dumps(draws[number]), file=file)
        result = draws[number]
        change = (result.get("where"), result.get("is"))
        if result["noticed"] is not None and change not in changes:
            changes.add(change)
            results.append(result)
            print(f"{len(results)}/{given.count} {result}", flush=True)
    return conclude(results, given.seed, record.with_suffix(".md"))


def judge(examiner, mutant):
    """A line of the record."""
    if mutant is None:
        return {"noticed": None}
    begin = time.monotonic()
    noticed = examiner.examine(mutant)
    _, was, now = mutant.change()
    return {
        "where": mutant.name,
        "was": was,
        "is": now,
        "noticed": noticed,
        "seconds": round(time.monotonic() - begin),
    }


def conclude(results, seed, path):
    """Write the table; 1 where too few were noticed."""
    num_noticed = sum(bool(result["noticed"]) for result in results)
    head = f"{num_noticed} of {len(results)} noticed (seed {seed})"
    path.write_text(f"# Mutants: {head}\n\n{table(results)}\n")
    survivors = [result for result in results if not result["noticed"]]
    print(f"\n{head}; all are in {path.relative_to(ROOT)}; survivors:")
    print(table(survivors))
    return 0 if num_noticed >= WANTED * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
