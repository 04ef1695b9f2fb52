"""Operations as torch's profiler shows them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch.autograd import profiler

from allhands.backends.communicator import Communicator
from allhands.backends.work import Work

__all__ = ["profiled"]

_NAMES = {"isend": "send", "irecv": "recv"}
_FORMS = ("_coalesced", "_single")  # which torch shows under one name


def profiled(communicator: Communicator, backend: str) -> Communicator:
    """`communicator`, whose operations are events of a profile while one is taken.

    They are named as Gloo's are: `gloo:all_reduce`, with the name of the `backend`. An
    event lasts until the operation has ended.
    """
    return cast(Communicator, _Profiled(communicator, backend))


class _Profiled:
    def __init__(self, communicator: Communicator, backend: str) -> None:
        self._communicator = communicator
        self._backend = backend

    def __getattr__(self, name: str) -> Callable[..., Work | None]:
        return partial(self._record, name, getattr(self._communicator, name))

    def _record(
        self, name: str, operation: Callable[..., Work | None], *arguments: Any
    ) -> Work | None:
        if name == "submit":
            name = arguments[0].op
        event = profiler.record_function(f"{self._backend}:{_shown(name)}")
        with event:
            work = operation(*arguments)
            if work is not None:
                ended: Any = torch.futures.Future()
                event._call_end_callbacks_on_future(ended)
                work.add_done_callback(lambda: ended.set_result(None))
        return work


def _shown(name: str) -> str:
    for form in _FORMS:
        name = name.removesuffix(form)
    return _NAMES.get(name, name)
