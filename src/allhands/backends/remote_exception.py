"""What the peers of a rank are told of the exception that ends it.

It goes to them with the failure that they raise: by the memory that they share, by a
connection, or by a store. Text alone does, never an object of another process. They
make a `RemoteError` of it, of whatever bytes have come.
"""

from __future__ import annotations

import traceback

from allhands.errors import RemoteError

__all__ = ["headline", "heard", "told"]

_LONGEST = 16_000  # bytes: what `RemoteException` of the core has room for
_LONGEST_LINE = 200  # characters
_LONGEST_MESSAGE = 1_000  # the same; the traceback has all of it
_BETWEEN = "\x1e"  # no part has one, as it cannot be printed


def headline(error: BaseException) -> str:
    """The type of `error`, and the first line of its message."""
    name, text = _name_of(error), _text_of(error)
    return (f"{name}: {text}" if text else name).split("\n")[0][:_LONGEST_LINE]


def told(error: BaseException) -> str:
    """The type of `error`, its message, and the end of its traceback."""
    head = _BETWEEN.join([_name_of(error), _text_of(error), ""])
    lines = _printable("".join(traceback.format_exception(error)).strip())
    return head + _end(lines, _LONGEST - len(head.encode()))


def heard(rank: int, text: object) -> RemoteError | None:
    """What `told` has put into `text`; None: that did not."""
    if not isinstance(text, str) or len(text) > _LONGEST or text.count(_BETWEEN) != 2:
        return None
    name, message, lines = map(_printable, text.split(_BETWEEN))
    return RemoteError(rank, name, message, lines)


def _name_of(error: BaseException) -> str:
    kind = type(error)
    is_plain = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"
    return _printable(name[:_LONGEST_LINE])


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # the class is the program's own
        text = "<its text cannot be made>"
    return _printable(text[:_LONGEST_MESSAGE])


def _printable(text: str) -> str:
    """With escapes for what a terminal would obey, or no encoding has."""
    return "".join(
        each
        if each.isprintable() or each in "\n\t"
        else each.encode("unicode_escape").decode()
        for each in text
    )


def _end(text: str, limit: int) -> str:
    """Its last lines, as many as are no more than `limit` bytes."""
    data = text.encode()
    if len(data) <= limit:
        return text
    kept = data[len(data) - limit + len("...\n") :].decode(errors="ignore")
    return "...\n" + (kept.partition("\n")[2] or kept)
