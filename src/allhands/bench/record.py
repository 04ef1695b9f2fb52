"""The file that `--json` writes and `--from` reads: the machine, and every figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from allhands.bench.results import Result

__all__ = ["read_record", "write_record"]

_FORMAT = 1


def write_record(
    path: Path,
    effort: dict[str, Any],
    machine: dict[str, Any],
    rows: Sequence[Sequence[Result]],
) -> None:
    """Write a whole run; `machine` is what `describe` and `measure_limits` returned."""
    record = {
        "format": _FORMAT,
        "machine": machine,
        "effort": effort,
        "results": [result.as_json() for row in rows for result in row],
    }
    path.write_text(json.dumps(record, indent=1))


def read_record(path: Path) -> tuple[dict[str, Any], list[list[Result]]]:
    """Return the machine of a recorded run, and the results of all peers by cell.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no record of this format.
    """
    try:
        record = json.loads(path.read_bytes())
        for option, key in (("--torch", "training"), ("--scale", "scale")):
            if key in record:
                raise ValueError(
                    f"it has what {option} measured, which is not shown again"
                )
        if record["format"] != _FORMAT:
            raise ValueError(f"format {record['format']!r}, want {_FORMAT}")
        machine = dict(record["machine"])
        copies = {int(k): float(v) for k, v in machine["limits"]["copy"].items()}
        machine["limits"] = {**machine["limits"], "copy": copies}
        results = [Result.from_json(row) for row in record["results"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{str(path)!r} is no record of `allhands bench --json`: {error!r}"
        ) from error
    return machine, [list(row) for _, row in groupby(results, key=lambda r: r.cell)]
