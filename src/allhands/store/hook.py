"""The hook of stores: what is called before each request that a program makes of one.

While there is one, the methods of the store classes, a program's own too, are such that
call it first; without one nothing of this is on the way. Not told are requests that the
package makes itself, as while ranks meet, and those of which another request consists,
and those that a signal's handler makes while it interrupts one. Thread-safe, and for
such handlers, too.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeAlias

__all__ = ["REQUESTS", "StoreHook", "cover", "hang", "take_down"]

REQUESTS = (
    *("set", "get", "add", "append", "check", "wait", "compare_set", "delete_key"),
    *("num_keys", "list_keys", "multi_get", "multi_set", "queue_push", "queue_pop"),
    *("queue_len", "barrier"),
)
"""What a program asks of a store."""

StoreHook: TypeAlias = Callable[[str], None]
"""It is called with one of `REQUESTS`; what it raises keeps that from beginning."""

_lock = threading.RLock()
_hooks: list[StoreHook] = []
_covered: weakref.WeakSet[type] = weakref.WeakSet()
_replaced: list[tuple[type, str, FunctionType, Any]] = []
"""Class, method, what it was and what it is, while there are hooks."""


class _Within(threading.local):
    is_request = False


_within = _Within()


def cover(store_class: type) -> None:
    """A class of stores is there, whose requests hooks are to be told of."""
    with _lock:
        _covered.add(store_class)
        if _hooks:
            _replace(store_class)


def hang(hook: StoreHook) -> None:
    """Call `hook` before each request from now on."""
    with _lock:
        _hooks.append(hook)
        if len(_hooks) == 1:
            for store_class in list(_covered):
                _replace(store_class)


def take_down(hook: StoreHook) -> None:
    """Take back a `hang`."""
    with _lock:
        if hook in _hooks:
            _hooks.remove(hook)
        if not _hooks:
            _restore()


def _replace(store_class: type) -> None:
    for name in REQUESTS:
        before = vars(store_class).get(name)
        if isinstance(before, FunctionType):
            now = _telling(name, before)
            _replaced.append((store_class, name, before, now))
            setattr(store_class, name, now)


def _restore() -> None:
    while _replaced:
        store_class, name, before, now = _replaced.pop()
        if vars(store_class).get(name) is now:  # a program may have put its own there
            setattr(store_class, name, before)


def _telling(name: str, method: FunctionType) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if _within.is_request or str(caller).startswith("allhands."):
            return method(*args, **kwargs)
        _within.is_request = True
        try:
            for hook in list(_hooks):
                hook(name)
            return method(*args, **kwargs)
        finally:
            _within.is_request = False

    return call


def _forget_after_fork() -> None:
    """Another thread's lock would stay locked in a forked child."""
    global _lock
    _lock = threading.RLock()
    _hooks.clear()
    _restore()


os.register_at_fork(after_in_child=_forget_after_fork)
