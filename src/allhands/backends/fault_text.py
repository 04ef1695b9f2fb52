"""Parses the text form of faults on demand: `rank=1,op=all_reduce,nth=5,do=kill`.

Commas separate the keys with their values. `;` separates several faults.
"""

from __future__ import annotations

import difflib
import re
import threading
from dataclasses import replace

from allhands.backends.call import OPERATIONS
from allhands.backends.faults import NO_END, STORE, Fault
from allhands.store.hook import REQUESTS

__all__ = ["parse"]

_AROUND = (
    *("init_process_group", "new_group", "merge_remote_group"),
    *("all_gather_object", "gather_object", "broadcast_object_list"),
    *("scatter_object_list", "send_object_list", "recv_object_list"),
    *("all_reduce_object", "reduce_object", "split_group_by_color", "empty_shared"),
)
"""What is no `Call`; most of them Python carries out, with some of the others."""
_ON_STORES = tuple(f"{STORE}{request}" for request in REQUESTS)
_COUNT_AS = {
    **{"isend": "send", "irecv": "recv", "sendrecv": "send"},
    **{"monitored_barrier": "barrier", "batch_isend_irecv": "send"},
    "all_gather_into_tensor": "all_gather_single",
    "reduce_scatter_tensor": "reduce_scatter_single",
}
"""Other functions of the package, and the operation as which each of them counts."""
_KEYS = ("rank", "op", "group", "nth", "attempt", "after", "do")
_DEEDS = ("kill", "stop", "raise", "drop-link")
_BY_THE_CALLER = ("delay", "raise")
"""Actions of the calling thread itself, which no other thread can take for it."""
_MOST_CODE = 255  # the highest code that a process can give its parent
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MOST_SECONDS = threading.TIMEOUT_MAX


def parse(text: str, subject: str) -> tuple[Fault, ...]:
    """Return the faults that `text` asks for; errors name `subject` as its source.

    Raises:
        ValueError: the text cannot be parsed; the message says why, and what is
            possible.
    """
    items = [item.strip() for item in text.split(";")]
    try:
        return tuple(_fault(item) for item in items if item)
    except ValueError as error:
        raise ValueError(
            f"{subject} is {text!r}: {error}; want for instance "
            f"'rank=1,op=all_reduce,nth=5,do=kill'"
        ) from None


def _fault(item: str) -> Fault:
    told: dict[str, str] = {}
    for pair in item.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (equals and value):
            raise ValueError(f"{pair.strip()!r} is not key=value")
        if key not in _KEYS:
            raise ValueError(f"there is no key {key!r}, only {', '.join(_KEYS)}")
        if key in told:
            raise ValueError(f"{key!r} is there twice in {item!r}; put ; between two")
        told[key] = value
    if "do" not in told:
        raise ValueError(f"{item!r} has no do=")
    deed = _deed(told["do"])
    first, last = _nth(told["nth"]) if "nth" in told else (1, NO_END)
    _check_together(told, deed.do)
    return replace(
        deed,
        rank=_number("rank", told["rank"]) if "rank" in told else None,
        op=_op(told["op"]) if "op" in told else "",
        group=told.get("group", ""),
        first=first,
        last=last,
        attempt=_number("attempt", told["attempt"]) if "attempt" in told else None,
        after=_seconds("after=", told["after"]) if "after" in told else 0.0,
    )


def _check_together(told: dict[str, str], do: str) -> None:
    op = told.get("op", "")
    if do == "drop-link" and (op.startswith(STORE) or op == "init_process_group"):
        raise ValueError(
            f"do=drop-link cuts connections between ranks, and op={op} has none"
        )
    if op.startswith(STORE) and "group" in told:
        raise ValueError(f"op={op} is of no group; leave group={told['group']} out")
    if do in _BY_THE_CALLER and "after" in told:
        raise ValueError(
            f"do={do} is done before the operation begins; leave "
            f"after={told['after']} out"
        )


def _deed(text: str) -> Fault:
    """Return the fault with this action, for any operation."""
    do, colon, value = text.partition(":")
    if do == "drop-link" and colon:
        return Fault(do, peer=_number("drop-link", value))
    if do == "exit" and colon:
        return Fault(do, code=_exit_code(value))
    if do == "delay" and colon:
        return Fault(do, seconds=_seconds("do=delay:", value))
    if text in _DEEDS:
        return Fault(text)
    raise ValueError(
        f"do={text} is not {', '.join(_DEEDS)}, exit with a code, as exit:3, or "
        f"delay with a time, as delay:200ms"
    )


def _seconds(before: str, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text, re.ASCII)
    if found is None:
        raise ValueError(
            f"{before}{text} is no time with its unit, as {before}200ms; units are "
            f"{', '.join(_UNITS)}"
        )
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > _MOST_SECONDS:
        raise ValueError(f"{before}{text} is more than {_MOST_SECONDS:.0f}s")
    return seconds


def _exit_code(text: str) -> int:
    code = _number("exit", text)
    if code > _MOST_CODE:
        raise ValueError(f"do=exit:{text} is more than {_MOST_CODE}")
    return code


def _nth(text: str) -> tuple[int, int]:
    """Return first and last: `5` is the fifth, `5-9` five, `5-` all later ones."""
    first, dash, last = text.partition("-")
    start = _number("nth", first)
    end = _number("nth", last) if last else NO_END if dash else start
    if not 1 <= start <= end:
        raise ValueError(f"nth={text} counts from 1, the first not above the last")
    return start, end


def _op(text: str) -> str:
    known = (*OPERATIONS, *_AROUND, *_ON_STORES)
    if text in known:
        return text
    counts_as = _COUNT_AS.get(text, f"{STORE}{text}")
    is_known = counts_as in known
    near = [counts_as] if is_known else difflib.get_close_matches(text, known, 1)
    meant = f", perhaps {near[0]}" if near else f", only {', '.join(known)}"
    raise ValueError(f"there is no op {text!r}{meant}")


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{key}={text} is no number")
    return int(text)
