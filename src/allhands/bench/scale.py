"""`allhands bench --scale`: what more ranks on this host cost, from start to end.

Each round starts a new job for each number of ranks. The ranks are forked from one
process; this process serves their store, and counts what goes through it.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allhands import settings
from allhands._C import StoreServer
from allhands.bench.job import JobError
from allhands.bench.scale_worker import OPERATIONS
from allhands.elastic.descriptors import room_for
from allhands.elastic.guard import Guard

__all__ = ["FIGURES", "Figure", "Scale", "growth", "measure_scale", "parse_ranks"]

_HOST = "127.0.0.1"
_LIMIT_S = 600.0  # of a job; many times what any takes
_LINES = 20  # of a failed job's output that are shown


@dataclass(frozen=True)
class Figure:
    """A column: one figure of a job, shown in `unit`, which is `size` base units.

    The title is the heading of the column, with its line breaks.
    """

    title: str
    unit: str = ""
    size: float = 1.0


FIGURES: Mapping[str, Figure] = {
    "init": Figure("init", "ms", 1e-3),
    "first_barrier": Figure("first\nbarrier", "ms", 1e-3),
    "destroy": Figure("destroy", "ms", 1e-3),
    "start_cpu": Figure("CPU of\nthese", "ms", 1e-3),
    "requests": Figure("store\nrequests"),
    "store_bytes": Figure("store\ntraffic", "KB", 1e3),
    "segment": Figure("segment", "MB", 1e6),
    "pss": Figure("PSS\na rank", "MB", 1e6),
    "all_reduce": Figure("all_\nreduce", "µs", 1e-6),
    "all_reduce_cpu": Figure("CPU", "µs", 1e-6),
    "broadcast": Figure("broadcast", "µs", 1e-6),
    "broadcast_cpu": Figure("CPU", "µs", 1e-6),
    "barrier": Figure("barrier", "µs", 1e-6),
    "barrier_cpu": Figure("CPU", "µs", 1e-6),
}


@dataclass(frozen=True)
class Scale:
    """The figures of one number of ranks: seconds, bytes or counts, round by round."""

    ranks: int
    figures: Mapping[str, Sequence[float]]

    def median(self, name: str) -> float:
        """Return the median of the rounds."""
        return float(statistics.median(self.figures[name]))


def growth(rows: Sequence[Scale], name: str) -> float | None:
    """Return a figure's factor when the ranks double; None for one number of ranks."""
    first, last = rows[0], rows[-1]
    doublings = math.log2(last.ranks / first.ranks)
    if doublings == 0 or first.median(name) <= 0:
        return None
    return float((last.median(name) / first.median(name)) ** (1 / doublings))


def parse_ranks(text: str) -> list[int]:
    """Return the numbers of a list with commas, where `...` continues a series.

    `...` stands for further numbers, each the one before it times the ratio of the two
    numbers before `...`.

    Raises:
        ValueError: the text has another form.
    """
    numbers: list[int] = []
    parts = [part.strip() for part in text.split(",")]
    for place, part in enumerate(parts):
        if part == "...":
            if len(numbers) < 2 or place + 1 == len(parts):
                raise ValueError(f"{text!r}: want 2 numbers before `...`, one after it")
            last = parts[place + 1]
            factor, rest = divmod(numbers[-1], numbers[-2])
            limit = int(last) if last.isdecimal() else 0
            while rest == 0 and numbers[-1] * factor < limit:
                numbers.append(numbers[-1] * factor)
            if rest or numbers[-1] * factor != limit:
                raise ValueError(f"{text!r}: `...` does not lead to {last}")
        elif not part.isdecimal() or int(part) < 2:
            raise ValueError(f"{text!r}: {part!r} is no number of ranks from 2 up")
        elif numbers and int(part) <= numbers[-1]:
            raise ValueError(f"{text!r}: {part} does not come after {numbers[-1]}")
        else:
            numbers.append(int(part))
    return numbers


def measure_scale(
    numbers: Sequence[int], rounds: int, tell: Callable[[int, int], None]
) -> Iterator[Scale]:
    """Yield the figures of each number of ranks; `tell` is called before each job.

    Raises:
        JobError: a rank died, or failed.
        OSError: this many ranks need more descriptors than a process may have.
    """
    for ranks in numbers:
        measured = []
        for turn in range(rounds):
            tell(ranks, turn)
            with room_for(ranks, ranks):
                measured.append(_measure(ranks))
        yield Scale(ranks, {name: [m[name] for m in measured] for name in FIGURES})


def _measure(ranks: int) -> dict[str, float]:
    """Measure the figures of one job."""
    secret, mark = secrets.token_hex(32), secrets.token_hex(16)
    server = StoreServer(_HOST, 0, secret, _LIMIT_S)
    places = _run(ranks, _environment(ranks, server.port, secret, mark), mark)
    traffic = server.traffic()
    start = ("init", "first_barrier", "destroy")
    steps = {name: list(zip(*[p[name] for p in places], strict=True)) for name in start}
    figures = {
        # The time of each rank on its own, from when its process runs.
        "init": statistics.median(p["init"][1] - p["init"][0] for p in places),
        # From the arrival of the last rank to the return of the last rank.
        "first_barrier": max(steps["first_barrier"][1])
        - max(steps["first_barrier"][0]),
        "destroy": max(steps["destroy"][1]) - max(steps["destroy"][0]),
        "start_cpu": sum(sum(steps[name][2]) for name in start),
        "requests": traffic.requests,
        "store_bytes": traffic.bytes_received + traffic.bytes_sent,
        "segment": max(p["segment"] for p in places),
        "pss": statistics.mean(p["pss"] for p in places),
    }
    for name in OPERATIONS:
        seconds, cpu = zip(*[p[name] for p in places], strict=True)
        figures[name], figures[f"{name}_cpu"] = max(seconds), sum(cpu)
    return figures


def _environment(ranks: int, port: int, secret: str, mark: str) -> dict[str, str]:
    """Return the variables that lead ranks to a store, as `allhands run` sets them."""
    base = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC_")}
    place = settings.LaunchersStore(_HOST, port, port)
    return {
        **base,
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        settings.store.name: str(place),
        settings.secret.name: secret,
        settings.job_mark.name: mark,
    }


def _run(ranks: int, environment: Mapping[str, str], mark: str) -> list[dict[str, Any]]:
    """Return what each rank has measured; afterwards no rank is left."""
    guard = Guard(settings.job_mark.name, mark)
    process = None
    try:
        with guard.starting():
            process = subprocess.Popen(
                [sys.executable, "-m", "allhands.bench.scale_worker", str(ranks)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is for the measuring process
            )
        written, printed = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise JobError(f"{ranks} ranks did not end within {_LIMIT_S:g} s") from None
    finally:
        guard.sweep()
        if process is not None:
            process.wait()
    if process.returncode != 0:
        lines = printed.splitlines()[-_LINES:]
        raise JobError("\n".join([f"{ranks} ranks failed:", *lines]))
    places: list[dict[str, Any]] = json.loads(written)
    return places
