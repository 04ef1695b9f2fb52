"""check_equal: checks that all ranks have the same value, such as parameters."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import Any

import numpy as np

from allhands.arrays import SparseArrayError
from allhands.backends.content import hash_of, odd_ones
from allhands.backends.frames import source_lines
from allhands.errors import ContentMismatchError
from allhands.groups.arguments import Group, member_of
from allhands.ops.objects import all_gather_object
from allhands.rendezvous.ranges import in_ranges, in_world

__all__ = ["check_equal"]

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_MOST_SHOWN = 3
_NOTHING = "nothing"


def check_equal(
    value: Any, group: Group = None, *, timeout: timedelta | None = None
) -> None:
    """Raise an error on every rank of `group` if `value` differs between them.

    Every rank of `group` calls it. `value` is an array of any layout, a number, text,
    bytes, None, or a dict, list or tuple of these, also nested: the state of a model,
    an optimizer or a random generator, or a configuration. Two values are the same if
    their parts have the same names, dtypes, shapes and bits. The ranks exchange only
    hashes, by one `all_gather_object`, and by a second one if the hashes differ.

    Raises:
        ContentMismatchError: the values differ. The message names the parts, and the
            ranks that differ from the majority.
        TypeError: a part of `value` has another type.

    Example:
        ```python
        dist.debug.check_equal(model.state_dict())  # before DistributedDataParallel
        ```
    """
    member = member_of(group)
    [*place] = source_lines(sys._getframe())[:1]
    parts = dict(_parts(value, ""))
    total = blake2b(repr(sorted(parts.items())).encode(), digest_size=8).hexdigest()
    totals: list[Any] = [None] * member.size()
    all_gather_object(totals, total, group=member, timeout=timeout)
    if len({*totals}) == 1:
        return
    of_each: list[Any] = [None] * member.size()
    all_gather_object(of_each, parts, group=member, timeout=timeout)
    where = "".join(f" ({each})" for each in place)
    title = f"group {member.group_name!r}{in_world(member.global_ranks)}"
    text, ranks = _difference(of_each)
    error = ContentMismatchError(
        f"check_equal on {title}{where}: the value is not the same on all ranks: "
        f"{text}; give all ranks that of one, as by broadcast(), or make it alike, as "
        f"by the same seed"
    )
    error.ranks = ranks
    raise error


def _difference(of_each: list[dict[str, str]]) -> tuple[str, list[int]]:
    """Return a text about the differences, and the ranks that differ."""
    names = list(dict.fromkeys(name for parts in of_each for name in parts))
    texts, ranks = [], set[int]()
    for name in names:
        found = [parts.get(name, _NOTHING) for parts in of_each]
        odd = odd_ones(found)
        if not odd:
            continue
        ranks.update(odd)
        by_value: dict[str, list[int]] = {}
        for rank in (*odd, *range(len(found))):
            if rank not in by_value.setdefault(found[rank], []):
                by_value[found[rank]].append(rank)
        holders = ", ".join(f"{in_ranges(r)} {v}" for v, r in by_value.items())
        texts.append(f"{name or 'it'}: ranks {holders}")
    more = len(texts) - _MOST_SHOWN
    shown = "; ".join(texts[:_MOST_SHOWN])
    return shown + (f"; and {more} more parts" if more > 0 else ""), sorted(ranks)


def _parts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and description of each part: dtype, shape and hash, or itself."""
    if isinstance(value, Mapping):
        yield f"{name}{{}}", f"{len(value)} keys"
        for key, part in value.items():
            yield from _parts(part, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple):
        yield f"{name}[]", f"{len(value)} items"
        for number, part in enumerate(value):
            yield from _parts(part, f"{name}[{number}]")
    elif isinstance(value, _PLAIN):
        shown = repr(value)
        long = blake2b(shown.encode(), digest_size=8).hexdigest()
        yield name, shown if len(shown) <= 40 else f"{shown[:20]}... {long}"
    else:
        yield name, _array(value, name)


def _array(value: Any, name: str) -> str:
    array = np.asarray(value) if isinstance(value, np.generic) else value
    try:
        found = hash_of([array])
    except (TypeError, SparseArrayError) as error:
        part = f"its part {name}" if name else "the value"
        raise TypeError(
            f"check_equal(): {part} is no array, number or text, nor a dict or list of "
            f"such: {error}"
        ) from error
    shape = "x".join(map(str, getattr(array, "shape", ()))) or "one"
    return f"{getattr(array, 'dtype', type(array).__name__)} {shape} {found:016x}"
