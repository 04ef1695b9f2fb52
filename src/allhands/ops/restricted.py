"""RestrictedUnpickler: reads a pickle of somebody who is not trusted to run code here.

A pickle is a program: it names functions, calls them, and sets what objects consist of.
This reader obeys only as far as that makes containers, numbers, texts, arrays and
tensors: names come from a list, and only what was named is called. Classes that the
program itself allowed, by `torch.serialization.add_safe_globals`, bring all they do.

It is written in Python, some ten times as slow as the plain one, but for large data.
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
_NEVER = {"sys", "os", "posix", "nt"}  # not even where the program allows it

_Loader: Any = pickle._Unpickler
"""The reader that is written in Python: a method for each kind of instruction."""


class RestrictedUnpickler(_Loader):  # type: ignore[misc]
    """See the module. What is not allowed is a `pickle.UnpicklingError` of `load()`."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {**_Loader.dispatch}

    def __init__(self, file: Any, buffers: Any) -> None:
        super().__init__(file, buffers=buffers)
        self._by_user = allowed_by_user()
        self._named: dict[int, Any] = {}
        """What the pickle named so far, by id."""

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle names."""
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
        """Refuse what is named by a number."""
        _refuse(f"Unsupported global: extension {code} is not allowed")

    def check_call(self, called: Any) -> None:
        """Hold that the pickle named what it calls."""
        if id(called) not in self._named:
            _refuse(f"the pickle calls {called!r}, which it has not named")

    def check_change(self, made: Any, *kinds: type) -> None:
        """Hold that `made`, which the pickle fills, is of these kinds or the user's."""
        if type(made) not in kinds and type(made) not in self._by_user.values():
            _refuse(f"the pickle changes an object of {type(made)}")


def _refuse(what: str) -> NoReturn:
    raise pickle.UnpicklingError(f"weights_only: {what}")


def _refuse_old(_: Any) -> NoReturn:
    _refuse("the pickle has an instruction of protocol 0 or 1")


def _build(reader: Any) -> None:
    """Give an object its state."""
    made, state = reader.stack[-2:]
    if set_state(made, state):
        reader.stack.pop()
        return
    reader.check_change(made, collections.OrderedDict)
    _Loader.load_build(reader)


def _load_bytearray(reader: Any) -> None:
    """Put a bytearray together piece by piece; pickle's own takes it three times."""
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

# What is looked at before an instruction is obeyed. One for many items finds what they
# are for below a mark.
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
