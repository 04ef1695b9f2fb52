"""TorchWork: handles of operations in the form that torch and its C++ code need."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import Any

import torch.autograd.graph
import torch.distributed
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from allhands.backends.work import CombinedWork, Work
from allhands.errors import DistError
from allhands.torch.uncompiled import uncompiled

__all__ = ["ENDED", "TorchWork"]

_NO_LIMIT = timedelta(0)
_BACKWARD = torch.autograd.graph._engine_run_backward.__code__
_JOIN = DistributedDataParallel._match_all_reduce_for_bwd_pass.__code__


class _Caller(Enum):
    """The code that asks for a future."""

    REDUCER = auto()
    """torch's C++ code in a backward pass, which awaits it at the end of the pass."""
    JOINED = auto()
    """The reducer of a rank without further inputs, in the passes of the others."""
    HOOK = auto()
    """Python code that a backward pass calls."""
    OTHER = auto()


def _caller() -> _Caller:
    """Return what called the caller; for torch's C++ code this is the pass itself.

    There may be no such frame: a pass of `torch.distributed.autograd` runs in a thread
    of torch's C++.
    """
    caller = sys._getframe(1).f_back
    if caller is None:
        return _Caller.OTHER
    if torch._C._current_graph_task_id() == -1:
        return _Caller.JOINED if caller.f_code is _JOIN else _Caller.OTHER
    return _Caller.REDUCER if caller.f_code is _BACKWARD else _Caller.HOOK


@uncompiled
class TorchWork(torch.distributed.Work):  # type: ignore[misc]
    """An operation under way on the native engine.

    Args:
        work: the engine's handle.
        outputs: the tensors that the operation writes.
        overlaps: whether a CPU is free to run it beside this thread.
    """

    def __init__(self, work: Work, outputs: list[Any], overlaps: bool = True) -> None:
        super().__init__()
        self._overlaps = overlaps
        self._work = work
        self._outputs = outputs
        self._future: Any = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """See `allhands.Work.wait`; carries out the operation if it has not begun."""
        return self._work.wait(timeout)

    def synchronize(self) -> None:
        """Call `wait()`."""
        self._work.wait()

    def block_current_stream(self) -> None:
        """Call `wait()`: CPU memory has no streams."""
        self._work.wait()

    def is_completed(self) -> bool:
        """Return whether the operation has ended, well or not."""
        return self._work.is_completed()

    def is_success(self) -> bool:
        """Return whether the operation has succeeded."""
        return self._work.is_success()

    def exception(self) -> BaseException | None:
        """Return the operation's error."""
        return self._work.exception()

    def result(self) -> list[Any]:
        """Return the tensors that the operation wrote."""
        self._work.result()  # raises if there are none
        return self._outputs

    def source_rank(self) -> int:
        """Return the group rank of the sender of a receive's data."""
        return self._work.source_rank()

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Return a `torch.futures.Future` of the tensors; the same one on every call.

        For a communication hook in Python, the operation has ended. So the callbacks of
        the hook run in order with the backward pass, and operations that they start
        have the same order on every rank. For DDP's reducer, the operation ends with
        the pass, and the pass raises its error. The future for the reducer holds no
        error, because the error would lose its type in C++. An operation on float16
        ends in this call, if it is the reducer's.
        """
        if self._future is None:
            caller = _caller()
            is_reducers = caller in (_Caller.REDUCER, _Caller.JOINED)
            if is_reducers and self._outputs[0].dtype is torch.float16:
                self._future = self._future_of_the_ended(caller)
            else:
                self._future = self._future_of_the_end(caller)
        return self._future

    def _future_of_the_end(self, caller: _Caller) -> Any:
        if caller is _Caller.HOOK:
            with suppress(DistError):  # the future has the error
                self._work.wait()
        ended: Any = torch.futures.Future()
        is_reducers = caller is _Caller.REDUCER
        future = ended.then((lambda _: self._outputs) if is_reducers else self._outcome)
        self._work.add_done_callback(lambda: ended.set_result(None))
        if is_reducers:
            self._end_with_pass()
        else:
            self._work._hurry()
        return future

    def _future_of_the_ended(self, caller: _Caller) -> Any:
        """Wait, and return a future that is done.

        DDP's own hook FP16_COMPRESS takes only a list of tensors that is one in C++,
        too. Python can give a future such a value only as it makes the future.
        """
        if caller is _Caller.JOINED:
            self._work.wait()
        else:
            self._end_with_pass()
            with suppress(DistError):  # the pass raises it
                self._work.wait()
        return torch._C.fork(lambda: self._outputs)

    def _end_with_pass(self) -> None:
        """Let the autograd engine wait before the reducer, and raise after it."""
        if self._overlaps:
            self._work._hurry()
        else:
            self._work._postpone()
        at_end = Variable._execution_engine.queue_callback

        def wait() -> None:
            try:
                self._work.wait()
            except DistError as error:
                at_end(partial(_raise, error))

        at_end(wait)

    def _outcome(self, _: Any) -> list[Any]:
        error = self._work.exception()
        if error is not None:
            raise error
        return self._outputs


def _raise(error: DistError) -> None:
    raise error


@uncompiled
class _Ended(TorchWork):
    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Return True."""
        return True


ENDED = _Ended(CombinedWork([], []), [])
"""The handle of any operation that succeeded before its call returned."""
