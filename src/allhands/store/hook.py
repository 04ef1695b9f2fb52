"""Hooks of stores: functions that run before each request of a program to a store.

While a hook exists, the request methods of all store classes, also those of the
program, are replaced by methods that first call the hook. Without a hook, a request
runs no code of this module. Hooks do not see requests of the package itself, for
example while ranks meet, nor requests that are part of another request, nor requests of
a signal handler that interrupts a request. The module is thread-safe, also for such
handlers.
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
"""The names of the requests that a program can make."""

StoreHook: TypeAlias = Callable[[str], None]
"""A function that gets one of `REQUESTS`; if it raises, the request does not begin."""

_lock = threading.RLock()
_hooks: list[StoreHook] = []
_covered: weakref.WeakSet[type] = weakref.WeakSet()
_replaced: list[tuple[type, str, FunctionType, Any]] = []
"""Class, name of the method, old method and new method, while there are hooks."""


class _Within(threading.local):
    is_request = False


_within = _Within()


def cover(store_class: type) -> None:
    """Register a class of stores, so that hooks see its requests."""
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
    """Remove a hook that `hang` added."""
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
        if vars(store_class).get(name) is now:  # a program may have set its own
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
    """Start a forked child without hooks, and without a lock of another thread."""
    global _lock
    _lock = threading.RLock()
    _hooks.clear()
    _restore()


os.register_at_fork(after_in_child=_forget_after_fork)
