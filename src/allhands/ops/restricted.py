"""RestrictedUnpickler: reads a pickle from a sender that may not run code here.

A pickle is a program: it names functions, calls them, and sets the state of objects.
This reader follows it only as far as it makes containers, numbers, texts, arrays and
tensors. It takes names only from a list, and calls only objects that the pickle named.
Classes that the program itself allowed with `torch.serialization.add_safe_globals` may
use everything that they define.

The reader is written in Python. Except for large data, it takes about ten times as long
as the plain one.
"""

from __future__ import annotations

import collections
import pickle
import struct
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from allhands.arrays.loading import (
    allowed_by_user,
    loadable,
    set_state,
)

__all__ = ["RestrictedUnpickler"]

_PLAIN = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray, range, slice),
        *(list, tuple, dict, set, frozenset),
        *(collections.OrderedDict, collections.Counter),
        *(collections.deque, collections.defaultdict),
    )
}
_NEVER = {"sys", "os", "posix", "nt"}  # refused even if the program allows them

_Loader: Any = pickle._Unpickler
"""The unpickler that is written in Python, with one method per kind of instruction."""


class RestrictedUnpickler(_Loader):  # type: ignore[misc]
    """See the module. `load()` raises `UnpicklingError` for anything not allowed."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {**_Loader.dispatch}

    def __init__(self, file: Any, buffers: Any) -> None:
        super().__init__(file, buffers=buffers)
        self._by_user = allowed_by_user()
        self._named: dict[int, Any] = {}
        """The objects that the pickle has named so far, by id."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the object that a pickle names."""
        full = f"{module}.{name}"
        try:
            if module in _NEVER:
                raise KeyError(full)
            if full in self._by_user:
                found = self._by_user[full]
            else:
                found = _PLAIN[full] if full in _PLAIN else loadable(full)
        except KeyError:
            _refuse(
                f"Unsupported global: {full} is not allowed; pass weights_only=False "
                f"if you trust the sender to run code here, or allow it by "
                f"torch.serialization.add_safe_globals"
            )
        self._named[id(found)] = found
        return found

    def get_extension(self, code: int) -> None:
        """Refuse an object that is named by an extension code."""
        _refuse(f"Unsupported global: extension {code} is not allowed")

    def check_call(self, called: Any) -> None:
        """Refuse a call of an object that the pickle has not named."""
        if id(called) not in self._named:
            _refuse(f"the pickle calls {called!r}, which it has not named")

    def check_change(self, made: Any, *kinds: type) -> None:
        """Refuse to fill `made` unless it is of these kinds or a class of the user."""
        if type(made) not in kinds and type(made) not in self._by_user.values():
            _refuse(f"the pickle changes an object of {type(made)}")


def _refuse(what: str) -> NoReturn:
    raise pickle.UnpicklingError(f"weights_only: {what}")


def _refuse_old(_: Any) -> NoReturn:
    _refuse("the pickle has an instruction of protocol 0 or 1")


def _build(reader: Any) -> None:
    """Set the state of an object."""
    made, state = reader.stack[-2:]
    if set_state(made, state):
        reader.stack.pop()
        return
    reader.check_change(made, collections.OrderedDict)
    _Loader.load_build(reader)


def _load_bytearray(reader: Any) -> None:
    """Read a bytearray piece by piece; pickle's method takes its memory three times."""
    [left] = struct.unpack("<Q", reader.read(8))
    made = bytearray()
    while left:
        piece = reader.read(min(left, _LARGEST_PIECE))
        if not piece:
            raise EOFError(f"the pickle ends {left} bytes too early")
        made += piece
        left -= len(piece)
    reader.append(made)


_LARGEST_PIECE = 1 << 20

_LISTS = list, collections.deque
_MAPPINGS = (
    *(dict, collections.OrderedDict, collections.Counter),
    collections.defaultdict,
)

# The check that runs before each kind of instruction. An instruction for many items
# finds their container below a mark.
_CHECKS: dict[bytes, Callable[[Any], None]] = {
    pickle.REDUCE: lambda r: r.check_call(r.stack[-2]),
    pickle.NEWOBJ: lambda r: r.check_call(r.stack[-2]),
    pickle.NEWOBJ_EX: lambda r: r.check_call(r.stack[-3]),
    pickle.APPEND: lambda r: r.check_change(r.stack[-2], *_LISTS),
    pickle.APPENDS: lambda r: r.check_change(r.metastack[-1][-1], *_LISTS),
    pickle.SETITEM: lambda r: r.check_change(r.stack[-3], *_MAPPINGS),
    pickle.SETITEMS: lambda r: r.check_change(r.metastack[-1][-1], *_MAPPINGS),
    pickle.ADDITEMS: lambda r: r.check_change(r.metastack[-1][-1], set),
    pickle.INST: _refuse_old,
    pickle.OBJ: _refuse_old,
}


def _checked(
    check: Callable[[Any], None], obey: Callable[[Any], None]
) -> Callable[[Any], None]:
    def load(reader: Any) -> None:
        check(reader)
        obey(reader)

    return load


for _code, _check in _CHECKS.items():
    RestrictedUnpickler.dispatch[_code[0]] = _checked(
        _check, _Loader.dispatch[_code[0]]
    )
RestrictedUnpickler.dispatch[pickle.BUILD[0]] = _build
RestrictedUnpickler.dispatch[pickle.BYTEARRAY8[0]] = _load_bytearray
