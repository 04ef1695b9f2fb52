"""JobRecord: what the ranks of a job know or knew; reads it from files."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TextIO

from allhands.debug.dumps import Dump, one_line, rank_number
from allhands.elastic.records import BEGINNING

__all__ = ["JobRecord", "read_job"]

_LONGEST = 1 << 28  # characters read at once: the record of a rank


@dataclass(frozen=True)
class JobRecord:
    """What is known of a job. Immutable."""

    dumps: Sequence[Dump]
    """Sorted by rank; some may be missing."""
    endings: Mapping[int, str]
    """How ranks ended according to their launcher, or why they have no record."""


def read_job(paths: Iterable[str | os.PathLike[str]]) -> JobRecord:
    """Read the records in files of a rank or of a job, and in folders of files.

    If there are several of one rank, the last one counts.

    Raises:
        ValueError: a file, which the message names, is not a record; or there are none.
        OSError: a file cannot be read.
    """
    paths = list(paths)
    dumps: dict[int, Dump] = {}
    endings: dict[int, str] = {}
    files = [file for path in paths for file in _files(os.fspath(path))]
    with _uncollected():
        for dump in chain.from_iterable(_read(file, endings) for file in files):
            before = dumps.get(dump.rank)
            if before is None or before.time <= dump.time:
                dumps[dump.rank] = dump
    if not dumps:
        places = ", ".join(repr(os.fspath(path)) for path in paths)
        raise ValueError(f"there is no flight record in {places}")
    return JobRecord([dumps[rank] for rank in sorted(dumps)], endings)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable Python's garbage collector, which would take longer than reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _files(path: str) -> Sequence[str]:
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if name.endswith(".json"))
    paths = [os.path.join(path, name) for name in names]
    return [each for each in paths if os.path.isfile(each)]  # reading a pipe would wait


def _read(file: str, endings: dict[int, str]) -> Iterator[Dump]:
    """Yield the records in `file`; add its information to `endings`."""
    try:
        with open(file, encoding="utf-8") as stream:
            for told in _objects(stream):
                if isinstance(told, dict) and "traceEvents" in told:
                    continue  # an output of `allhands trace`
                is_of_a_job = isinstance(told, dict) and "ranks" in told
                yield from map(Dump.of, _ranks(told) if is_of_a_job else [told])
                if is_of_a_job and isinstance(told.get("endings"), dict):
                    ended = told["endings"].items()
                    endings.update(_ending(rank, how) for rank, how in ended)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file}: it is no flight record: {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from error


def _ranks(told: dict[str, Any]) -> list[Any]:
    ranks = told["ranks"]
    if not isinstance(ranks, list):
        raise TypeError(f"it is no flight record: its ranks are {ranks!r:.40}, no list")
    return ranks


def _ending(rank: str, how: Any) -> tuple[int, str]:
    return rank_number(int(rank)), one_line(how)


def _objects(stream: TextIO) -> Iterator[Any]:
    """Yield the objects of a file: one JSON object, or those of `elastic.records`."""
    line = _limited(stream.readline(_LONGEST + 1))
    if line != BEGINNING:
        yield json.loads(_limited(line + stream.read(_LONGEST + 1 - len(line))))
        return
    while line := _limited(stream.readline(_LONGEST + 1)):
        if line.startswith("]"):
            rest = stream.read(_LONGEST + 1 - len(line))
            yield json.loads(_limited(BEGINNING + line + rest))
            return
        yield json.loads(line.rstrip().removesuffix(","))
    raise ValueError("it ends amid the records")


def _limited(text: str) -> str:
    if len(text) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST} characters")
    return text
