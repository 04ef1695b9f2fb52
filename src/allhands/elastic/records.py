"""The flight records of a job in one file, and why a rank has none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping

from allhands.elastic.process_state import process_state

__all__ = [
    "BEGINNING",
    "ENDED_WELL",
    "HALTED",
    "NO_ANSWER",
    "is_halted",
    "limit_of",
    "lines_of",
    "write_records",
]

BEGINNING = '{"ranks": [\n'
"""Of a file that `write_records` has written."""
ENDED_WELL = "ended with exit code 0"
"""How a rank ended that did what it was to do."""
HALTED = "stopped by SIGSTOP, and not continued"
"""What a rank is that does not answer because somebody has stopped it."""
NO_ANSWER = "does not answer: it is in native code that lets no signal through"
"""What a rank is that does not answer though it runs. More may follow either text."""
# Of each of the ranks that share a CPU: a full record takes some 0.04 s of it.
_LIMIT_OF_ONE_S = 0.2


def limit_of(num_asked: int, least: float) -> float:
    """Seconds that so many ranks of this host have to answer, `least` or more."""
    return max(least, num_asked / len(os.sched_getaffinity(0)) * _LIMIT_OF_ONE_S)


def write_records(
    path: str, records: Iterable[str], endings: Mapping[int, str]
) -> None:
    """Write a job's file, as `lines_of` has it.

    Args:
        path: of the file.
        records: the JSON object of each rank that left one.
        endings: how ranks ended.

    Raises:
        OSError: it cannot be written whole.
    """
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines_of(records, endings))


def lines_of(records: Iterable[str], endings: Mapping[int, str]) -> Iterator[str]:
    """A job's file, with the record of each rank on a line of its own.

    So who reads it needs no more memory at once than for one of them.
    """
    yield BEGINNING
    before = ""
    for record in records:
        # A line's end is never within a string of JSON, only between its parts.
        yield before + record.replace("\r", " ").replace("\n", " ")
        before = ",\n"
    yield f'\n], "endings": {json.dumps(endings)}}}'


def is_halted(pid: int) -> bool:
    """Whether the kernel has the process stopped."""
    told = process_state(pid)
    return told is not None and told.is_stopped
