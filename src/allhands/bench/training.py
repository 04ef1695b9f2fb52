"""`allhands bench --torch`: steps of training with PyTorch, on Gloo and on allhands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from allhands import settings
from allhands.bench.job import JobError

__all__ = ["TrainingRow", "measure_training", "training_table"]

_LIMIT_S = 1800.0  # many times what the ranks take
_LEAVE_S = 10.0  # for the launcher to end its ranks


@dataclass(frozen=True)
class TrainingRow:
    """One row of the results: seconds of the slowest rank, round by round.

    Args:
        name: an operation, or a wrapper and its model.
        seconds: of `gloo` and `allhands`; of a step also `alone`, without the wrapper,
            and of DDP `silent`, with one that communicates nothing.
    """

    name: str
    seconds: Mapping[str, Sequence[float]]

    def time(self, column: str) -> float | None:
        """Return the median of the rounds; None where the row has no such column."""
        seconds = self.seconds.get(column)
        return None if seconds is None else float(median(seconds))

    @property
    def speedup(self) -> float:
        """Gloo's time divided by ours: the median of the rounds' ratios."""
        pairs = zip(self.seconds["gloo"], self.seconds["allhands"], strict=True)
        return median(gloo / ours for gloo, ours in pairs)

    @property
    def added(self) -> float | None:
        """What our engine adds to a step, as a fraction of what Gloo adds.

        It is None for rows that are no steps, and where Gloo adds nothing that can be
        measured.
        """
        if "alone" not in self.seconds:
            return None
        columns = (self.seconds[name] for name in ("alone", "gloo", "allhands"))
        rounds = list(zip(*columns, strict=True))
        if any(gloo <= alone for alone, gloo, _ in rounds):
            return None
        parts = [(ours - alone) / (gloo - alone) for alone, gloo, ours in rounds]
        return float(median(parts))


def measure_training(ranks: int, rounds: int) -> tuple[str, list[TrainingRow]]:
    """Return the version of torch, and the times of `ranks` ranks on this host.

    Raises:
        JobError: the ranks failed; the message holds the end of what they printed.
    """
    with TemporaryDirectory(prefix="allhands-bench-") as folder:
        path = Path(folder) / "figures"
        program = ["-m", "allhands.bench.training_worker", str(path), str(rounds)]
        launcher = [sys.executable, "-m", "allhands", "run", "--nproc", str(ranks)]
        _run([*launcher, *program])
        record = json.loads(path.read_bytes())
    rows = [TrainingRow(row.pop("name"), row) for row in record["rows"]]
    return record["torch"], rows


def _run(command: Sequence[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop(settings.replace_gloo.name, None)  # Gloo itself is measured
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the measuring process
    )
    try:
        printed, _ = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        raise JobError(f"the ranks were not done after {_LIMIT_S:.0f} s") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        raise JobError(f"the ranks failed:\n{printed[-4000:]}")


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LEAVE_S)
    process.kill()
    process.wait()


def training_table(rows: Sequence[TrainingRow]) -> Table:
    """Return a table with a line for each row and times in milliseconds."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    heads = ("alone", "silent", "gloo", "allhands")
    for head in (*(f"{head}\nms" for head in heads), "\nx", "over\nalone"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        times = [_text(row.time(column), 1e3) for column in heads]
        table.add_row(row.name, *times, _text(row.speedup), _text(row.added))
    return table


def _text(value: Any, scale: float = 1.0) -> str:
    return "" if value is None else f"{value * scale:.3g}"
