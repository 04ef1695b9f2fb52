"""What the peers of a rank learn about the exception that ends it.

It reaches them with the failure that they raise: by shared memory, a connection or a
store. It is only text, never an object of another process. The peers make a
`RemoteError` from it, whatever bytes have come.
"""

from __future__ import annotations

import traceback

from allhands.backends.printable import printable
from allhands.errors import RemoteError

__all__ = ["headline", "heard", "told"]

_LONGEST = 16_000  # bytes; `RemoteException` of the core has room for so many
_LONGEST_LINE = 600  # characters; a wait that was given up says why at its end
_LONGEST_MESSAGE = 1_000  # characters; the traceback has the complete message
_BETWEEN = "\x1e"  # no part contains it, because it is not printable


def headline(error: BaseException) -> str:
    """Return the type of `error` and the first line of its message."""
    name, text = _name_of(error), _text_of(error)
    return (f"{name}: {text}" if text else name).split("\n")[0][:_LONGEST_LINE]


def told(error: BaseException) -> str:
    """Return the type of `error`, its message, and the end of its traceback."""
    head = _BETWEEN.join([_name_of(error), _text_of(error), ""])
    lines = printable("".join(traceback.format_exception(error)).strip())
    return head + _end(lines, _LONGEST - len(head.encode()))


def heard(rank: int, text: object) -> RemoteError | None:
    """Return the exception that `told` wrote to `text`; None for any other text."""
    if not isinstance(text, str) or len(text) > _LONGEST or text.count(_BETWEEN) != 2:
        return None
    name, message, lines = map(printable, text.split(_BETWEEN))
    return RemoteError(rank, name, message, lines)


def _name_of(error: BaseException) -> str:
    kind = type(error)
    is_plain = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"
    return printable(name[:_LONGEST_LINE])


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # the class belongs to the program
        text = "<its text cannot be made>"
    return printable(text[:_LONGEST_MESSAGE])


def _end(text: str, limit: int) -> str:
    """Return the last lines of `text` that fit into `limit` bytes."""
    data = text.encode()
    if len(data) <= limit:
        return text
    kept = data[len(data) - limit + len("...\n") :].decode(errors="ignore")
    return "...\n" + (kept.partition("\n")[2] or kept)
