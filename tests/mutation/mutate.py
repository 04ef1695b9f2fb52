"""Do the tests notice when the code is wrong? Breaks it in many places, one at a time.

    make mutants                             60 mutants of both languages
    python tests/mutation/mutate.py --count 10 --only 'csrc/*/engine/*' --seed 7

A mutant that does not compile, or compiles to the same, is no mutant; another one is
drawn. On each run the tests nearest to it, until one fails: twice, and not on the code
as it is. Survivors in Python then face all tests that run their line, for which those
are measured: as long as all tests take one after the other. The results are kept in
build/mutation, in a folder of this commit, as they come, and a run that was cut short
goes on where it was. At the end stands a table; fewer than 90 % noticed is a failure.

It changes files in place, one at a time, and puts them back, so the checkout must have
no changes of yours.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
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
SKIPPED = 77  # what a program of the core ends with that cannot run here
# What pytest ends with: all passed; there was nothing to run, as where all that is left
# is flaky; it had to be stopped.
UNNOTICED = (0, 5, None)
FAILED = r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$"  # a line of its summary
# The last test that it began and did not end, where it crashed.
CRASHED = r"^(tests/\S+::.*?) (?:Fatal Python error.*)?$(?![\s\S]*^tests/\S+::)"
# Each with what of it shows whether a mutant is other code.
CORE, EXTENSION = (ROOT / "build/mutation" / name for name in ("core", "extension"))
TARGETS = {CORE: "allhands_core", EXTENSION: "_C"}
NUM_FIRST = 3  # test files that pytest collects alone, as they notice most


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
    """The core and its programs, and the extension, of the sources as they are now.

    Optimised little, and not across files: a mutant is compiled once and tried for a
    minute, so that takes less time as a whole.
    """

    def __init__(self):
        asked = [PYTHON, "-c", "import allhands; print(allhands._C.__file__)"]
        self._installed = pathlib.Path(run(asked, 60)[1].strip())
        self._original = self._installed.read_bytes()
        self._digests = {}

    def prepare(self, folder):
        """Build what `is_other` compares, of the sources as they are at first."""
        if folder not in self._digests:
            if not self.make(folder, TARGETS[folder]):
                sys.exit(f"mutate.py: the code does not build in {folder}")
            self._digests[folder] = self._digest(folder)

    def make(self, folder, target):
        """Build it; whether that works."""
        configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"]
        configure += ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1"]
        configure += [f"-DALLHANDS_TESTS={'ON' if folder == CORE else 'OFF'}"]
        build = ["cmake", "--build", folder, "-j", "2", "--target", target]
        is_there = (folder / "build.ninja").exists() or run(configure, 600)[0] == 0
        return is_there and run(build, 3600)[0] == 0

    def is_other(self, folder):
        """Build it; whether that works and makes other code than at first."""
        is_built = self.make(folder, TARGETS[folder])
        return is_built and self._digest(folder) != self._digests[folder]

    def install(self):
        """Let Python have the extension of the sources as they are; whether it can."""
        is_built = self.make(EXTENSION, "_C")
        if is_built:
            [built] = EXTENSION.glob("_C.*.so")
            self._install(built.read_bytes())
        return is_built

    def put_back(self):
        """Let Python have the extension as it was at first."""
        self._install(self._original)

    def _install(self, extension):
        new = self._installed.with_suffix(".new")  # some process may use the old one
        new.write_bytes(extension)
        new.replace(self._installed)

    def _digest(self, folder):
        digest = hashlib.sha256()
        for path in sorted(folder.glob(f"CMakeFiles/{TARGETS[folder]}.dir/**/*.o")):
            digest.update(path.read_bytes())
        return digest.hexdigest()


class Examiner:
    """Runs tests on one mutant at a time, for `limit` seconds in all.

    A test notices a mutant if it fails twice on it, and then not on the code as it was.
    """

    def __init__(self, limit):
        self._limit = limit
        self._end = 0.0

    @property
    def had_time(self):
        """Whether the last mutant was left with time to spare."""
        return self._left() > 0

    @functools.cached_property
    def _build(self):
        return Build()

    def examine(self, mutant, coverage_map=None):
        """What noticed `mutant`; "" where nothing did, None where it is none.

        Of one of Python, the tests near it, or with a map all that run its line.
        """
        if mutant.is_python and not mutant.is_other_python:
            return None
        by = self._by_python if mutant.is_python else self._by_core
        with self._broken(mutant):
            return by(mutant, coverage_map)

    @contextlib.contextmanager
    def _broken(self, mutant):
        if not mutant.is_python:
            self._build.prepare(_home(mutant))
        mutant.path.write_text(mutant.after)
        try:
            yield
        finally:
            mutant.path.write_text(mutant.before)
            if not mutant.is_python:
                self._build.put_back()

    def _by_python(self, mutant, coverage_map):
        line = mutant.change()[0]
        tests = selection.near_tests_of_python(mutant.path, line)
        if coverage_map is not None:
            more = selection.tests_of_python(mutant.path, line, coverage_map)
            tests = [test for test in more if test not in tests]
        self._end = time.monotonic() + self._limit
        return self._pytest(mutant, tests)

    def _by_core(self, mutant, _):
        near, far = selection.programs_of(mutant.path)
        if not self._build.is_other(_home(mutant)):
            return None
        self._end = time.monotonic() + self._limit
        return (
            self._programs(mutant, near)
            or self._by_extension(mutant)
            or self._programs(mutant, far)
        )

    def _by_extension(self, mutant):
        if self._left() < 0:
            return ""
        if not self._build.install():
            return "the extension does not build"
        return self._pytest(mutant, selection.tests_of_core(mutant.path))

    def _left(self):
        return self._end - time.monotonic()

    def _programs(self, mutant, names):
        for name in names:
            if self._left() < 0:
                break
            if not self._build.make(CORE, name):
                return f"{name}, which does not build"
            if self._fails(name) and self._fails(name):
                with self._mended(mutant):
                    is_noticed = self._build.make(CORE, name) and not self._fails(name)
                if is_noticed:
                    return name
        return ""

    def _fails(self, program):
        return run([CORE / program], HANG)[0] not in (0, SKIPPED)

    def _pytest(self, mutant, tests):
        some = tests[:NUM_FIRST], tests[NUM_FIRST:]
        return next(filter(None, (self._one_pytest(mutant, each) for each in some)), "")

    def _one_pytest(self, mutant, tests):
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
        with self._mended(mutant):
            if not mutant.is_python:
                self._build.put_back()
            code, _ = run(command, self._limit)
        if not mutant.is_python:
            self._build.install()
        return code == 0

    @contextlib.contextmanager
    def _mended(self, mutant):
        mutant.path.write_text(mutant.before)
        try:
            yield
        finally:
            mutant.path.write_text(mutant.after)


def _home(mutant):
    """Where a C++ mutant is compiled first."""
    return CORE if any(selection.programs_of(mutant.path)) else EXTENSION


def first_failed(output):
    """The test that ended a run of pytest, in a list; none where nothing began."""
    failed = re.findall(FAILED, output, re.MULTILINE)
    return failed[:1] or re.findall(CRASHED, output, re.MULTILINE)


def table(results):
    """What became of each, as Markdown."""
    lines = ["| | where | was | is | noticed by |", "|---|---|---|---|---|"]
    for number, result in enumerate(results, 1):
        cells = [result["where"], f"`{result['was']}`", f"`{result['is']}`"]
        told = (
            result["noticed"]
            or f"**nothing**{'' if result['had_time'] else ' in time'}"
        )
        row = " | ".join(cell.replace("|", "\\|") for cell in [*cells, told])
        lines.append(f"| {number} | {row} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="*", help="a pattern of file names")
    parser.add_argument("--limit", type=int, default=600, help="seconds for a mutant")
    given = parser.parse_args()
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        sys.exit("mutate.py: the checkout has changes; commit or stash them first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("mutate.py: terminated"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", f"{given.only}-seed-{given.seed}").strip("-")
    begun = Run(Examiner(given.limit), FOLDER / f"{name}.jsonl")
    drawn = begun.by_near_tests(mutants.sources(given.only), given.seed, given.count)
    begun.by_map(drawn)
    results = [begun.of(number) for number, _ in drawn]
    return conclude(results, given.seed, FOLDER / f"{name}.md")


class Run:
    """Mutants judged one after the other, and the record of it."""

    def __init__(self, examiner, record):
        self._examiner = examiner
        self._record = record
        known = record.read_text().splitlines() if record.exists() else []
        self._draws = {entry["draw"]: entry for entry in map(json.loads, known)}

    def by_near_tests(self, files, seed, count):
        """`count` of the mutants of a seed, each judged by the tests near it."""
        results = {}  # by change
        number = 0
        while len(results) < count:
            number += 1
            mutant = mutants.draw(files, seed, number)
            if number not in self._draws:
                self._judge(number, mutant)
            result = self._draws[number]
            change = (result.get("where"), result.get("is"))
            if result["noticed"] is not None and change not in results:
                results[change] = number, mutant
                print(f"{len(results)}/{count} {result}", flush=True)
        return list(results.values())

    def by_map(self, drawn):
        """Try Python's survivors on the other tests that run their lines."""
        left = [(n, m) for n, m in drawn if m.is_python and not self.of(n)["noticed"]]
        if left:
            coverage_map.make(jobs=2)
        for number, mutant in left:
            if "mapped" not in self.of(number):
                self._judge(number, mutant, CoverageMap())
                print(self.of(number), flush=True)

    def of(self, number):
        """What became of a draw."""
        return self._draws[number]

    def _judge(self, number, mutant, a_map=None):
        begin = time.monotonic()
        result = {"draw": number, "noticed": None}
        if a_map is not None:
            result["mapped"] = True
        if mutant is not None:
            result["noticed"] = self._examiner.examine(mutant, a_map)
            result["where"] = mutant.name
            _, result["was"], result["is"] = mutant.change()
            result["had_time"] = self._examiner.had_time
        result["seconds"] = round(time.monotonic() - begin)
        self._draws[number] = result
        with self._record.open("a") as file:
            print(json.dumps(result), file=file)


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
