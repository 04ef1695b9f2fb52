"""Do the tests notice when the code is wrong? Breaks it in many places, one at a time.

    make mutants                             60 mutants of both languages
    python tests/mutation/mutate.py --count 10 --only 'csrc/*/engine/*' --seed 7

Nothing of the checkout changes. All mutants of C++ are in one build of a copy of the
core, each chosen when a process starts (guards.py). One of Python is what its file's
import gives (hook/). A mutant that does not compile, or means the same to Python, is no
mutant; another one is drawn.

Each test is run once on the code as it is, when it is first wanted; that tells which
mutants it comes by. A mutant runs the tests near it that come by it until one fails:
twice, and not on the code as it is. A survivor then faces all other tests that come by
it. At the end stands a table; fewer than 90 % noticed is a failure.

The build compiles the core and its extension once; mutants of Python are tried beside
it. Each mutant takes seconds with a program of the core, a minute or two with Python,
and `--limit` seconds at most for each of the two steps. Where some survive, all tests
run once more, one by one. What was found is kept in build/mutation, in a folder of this
code, as it comes. So a run that was cut short goes on where it was, and where tests
have changed, only survivors are tried again.
"""

import argparse
import functools
import json
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import mutants
import selection
import workplace
from core import Core
from trials import Trials
from workplace import FOLDER, ROOT

WANTED = 0.9
DRAWN = 2  # times as many are drawn as are wanted: some are none
STAGES = {"near": selection.near, "all": selection.others}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="*", help="a pattern of file names")
    parser.add_argument("--limit", type=int, default=600, help="seconds for a mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    given = parser.parse_args()
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        sys.exit("mutate.py: the checkout has changes; commit or stash them first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("mutate.py: terminated"))
    name = f"{given.only}-seed-{given.seed}-count-{given.count}"
    folder = FOLDER / re.sub(r"\W+", "-", name).strip("-")
    drawn = draw(given.only, given.seed, DRAWN * given.count)
    of_python = [mutant for mutant in drawn if mutant.is_python]
    put_python(of_python, folder / "python")
    put_python([], folder / "core")
    core = Core(folder / "core", [m for m in drawn if not m.is_python])
    trials = (
        Trials(folder / "python", given.limit),
        Trials(core.folder, given.limit, core),
    )
    begun = Run(*trials, folder / "results.jsonl", given.jobs)
    with ThreadPoolExecutor(1) as builder:
        try:
            building = builder.submit(core.build)
            begun.judge([m for m in drawn[: given.count] if m.is_python], "near")
            chosen = [m for m in drawn if m.is_python or m.number in building.result()]
            chosen = chosen[: given.count]
            for stage in STAGES:
                begun.judge(chosen, stage)
        finally:
            workplace.stop()
    results = [begun.of(mutant) for mutant in chosen]
    return conclude(results, given.seed, folder / "table.md")


def draw(only, seed, count):
    """The mutants among the first `count` draws of a seed, each once."""
    files = mutants.sources(only)
    found = {}
    for number in range(1, count + 1):
        mutant = mutants.draw(files, seed, number)
        if mutant and (not mutant.is_python or mutant.is_other_python):
            found.setdefault((mutant.path, mutant.after), mutant)
    return list(found.values())


def put_python(drawn, folder):
    """Put mutants of Python where `hook` finds them."""
    folder.mkdir(parents=True, exist_ok=True)
    of_file = {}
    for mutant in drawn:
        of_file.setdefault(str(mutant.path), {})[mutant.number] = mutant.change()[0]
        (folder / f"{mutant.number}.py").write_text(mutant.after)
    (folder / "python.json").write_text(json.dumps(of_file))


class Run:
    """Judges mutants, `jobs` at a time, and keeps the record of it."""

    def __init__(self, of_python, of_core, record, jobs):
        self._trials = {True: of_python, False: of_core}
        self._record = record
        self._jobs = jobs
        self._tests = workplace.tree_of("tests", "csrc/tests")
        known = record.read_text().splitlines() if record.exists() else []
        self._results = {entry["draw"]: entry for entry in map(json.loads, known)}

    def judge(self, drawn, stage):
        """Try the tests of a stage on mutants that were not noticed by it yet."""
        left = [mutant for mutant in drawn if not self._is_judged(mutant, stage)]
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                list(pool.map(functools.partial(self._judge, stage=stage), left))
            except BaseException:
                workplace.stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _judge(self, mutant, stage):
        begin = time.monotonic()
        trials = self._trials[mutant.is_python]
        noticed, had_time = trials.judge(mutant.number, STAGES[stage](mutant))
        _, was, now = mutant.change()
        result = {"draw": mutant.number, "where": mutant.name, "was": was, "is": now}
        result |= {"noticed": noticed, "had_time": had_time}
        result |= {"stage": stage, "tests": self._tests}
        result["seconds"] = round(time.monotonic() - begin)
        self._results[mutant.number] = result
        with self._record.open("a") as file:
            print(json.dumps(result), file=file)
        print(f"{mutant.name} `{now}`: {noticed or '**nothing**'}", flush=True)

    def _is_judged(self, mutant, stage):
        known = self._results.get(mutant.number)
        if known is None or known["noticed"]:
            return known is not None
        order = list(STAGES)
        is_later = order.index(known["stage"]) >= order.index(stage)
        return known["tests"] == self._tests and is_later

    def of(self, mutant):
        """What became of a mutant."""
        return self._results[mutant.number]


def conclude(results, seed, path):
    """Write the table; 1 where too few were noticed."""
    num_noticed = sum(bool(result["noticed"]) for result in results)
    head = f"{num_noticed} of {len(results)} noticed (seed {seed})"
    path.write_text(f"# Mutants: {head}\n\n{table(results)}\n")
    survivors = [result for result in results if not result["noticed"]]
    print(f"\n{head}; all are in {path.relative_to(ROOT)}; survivors:")
    print(table(survivors))
    return 0 if num_noticed >= WANTED * len(results) else 1


def table(results):
    """What became of each, as Markdown."""
    lines = ["| | where | was | is | noticed by |", "|---|---|---|---|---|"]
    for number, result in enumerate(results, 1):
        cells = [result["where"], f"`{result['was']}`", f"`{result['is']}`"]
        in_time = "" if result["had_time"] else " in time"
        told = result["noticed"] or f"**nothing**{in_time}"
        row = " | ".join(cell.replace("|", "\\|") for cell in [*cells, told])
        lines.append(f"| {number} | {row} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
