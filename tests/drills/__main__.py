"""Run drills many times: `python -m drills --runs 30`, in tests/, as root.

Each run has a seed, by which what is left to chance can be had again (but for what the
machine adds). One line tells of each drill, with the times measured; of a run that went
wrong, how to run it alone, and why it did. The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import traceback

from drills.scene import Figures, Scene
from drills.table import DRILLS
from harness import pace


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m drills", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="DRILL", help="by default all")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--heartbeat", type=float, default=5.0, help="in seconds")
    return parser.parse_args()


def _told(figures: list[Figures]) -> str:
    """Each figure's median and the largest."""
    parts = []
    for name in figures[0] if figures else ():
        values = [each[name] for each in figures]
        middle = statistics.median(values)
        parts.append(f"{name} {middle:.2f} s (at most {max(values):.2f} s)")
    return ", ".join(parts)


def main() -> int:
    arguments = _arguments()
    unknown = set(arguments.names) - set(DRILLS)
    if unknown:
        names = ", ".join(DRILLS)
        sys.exit(f"no drill {', '.join(sorted(unknown))}; there are {names}")
    pace.start()
    num_bad = 0
    for name in arguments.names or DRILLS:
        figures = []
        for seed in range(arguments.seed, arguments.seed + arguments.runs):
            try:
                with Scene(name, seed, arguments.heartbeat) as scene:
                    figures.append(DRILLS[name](scene))
            except Exception:
                num_bad += 1
                again = f"{name} --seed {seed} --runs 1"
                print(f"BAD: python -m drills {again}", flush=True)
                traceback.print_exc(limit=-2)
        good = f"{len(figures)} of {arguments.runs} good"
        print(f"{name:30} {good:16} {_told(figures)}", flush=True)
    pace.end()
    return 1 if num_bad else 0


if __name__ == "__main__":
    sys.exit(main())
