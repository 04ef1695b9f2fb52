"""Handles of operations, as torch and its C++ take them."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.autograd.graph
import torch.distributed

from allhands.backends.work import CombinedWork, Work
from allhands.errors import DistError
from allhands.torch.uncompiled import uncompiled

__all__ = ["ENDED", "TorchWork"]

_NO_LIMIT = timedelta(0)
_BACKWARD = torch.autograd.graph._engine_run_backward.__code__


def _is_in_hook() -> bool:
    """Whether Python code that a backward pass calls is two frames up.

    Calls of torch's C++ have the pass itself there.
    """
    is_in_backward = torch._C._current_graph_task_id() != -1
    return is_in_backward and sys._getframe(2).f_code is not _BACKWARD


@uncompiled
class TorchWork(torch.distributed.Work):  # type: ignore[misc]
    """An operation under way on the native engine.

    Args:
        work: the engine's handle.
        outputs: the tensors that the operation writes.
    """

    def __init__(self, work: Work, outputs: list[Any]) -> None:
        super().__init__()
        self._work = work
        self._outputs = outputs
        self._future: Any = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """See `allhands.Work.wait`; carries the operation out, if it has not begun."""
        return self._work.wait(timeout)

    def synchronize(self) -> None:
        """`wait()`."""
        self._work.wait()

    def block_current_stream(self) -> None:
        """`wait()`: CPU memory has no streams."""
        self._work.wait()

    def is_completed(self) -> bool:
        """Whether the operation has ended, well or not."""
        return self._work.is_completed()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._work.is_success()

    def exception(self) -> BaseException | None:
        """What it raised."""
        return self._work.exception()

    def result(self) -> list[Any]:
        """The tensors that it wrote."""
        self._work.result()  # raises where they are not there
        return self._outputs

    def source_rank(self) -> int:
        """The group rank that a receive got its data from."""
        return self._work.source_rank()

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A `torch.futures.Future` of the tensors; the same one on every call.

        Its error is one for C++, too: DDP's reducer gets it where it waits. For a
        communication hook in Python it has ended: its callbacks run in order with the
        backward pass then, so what they start comes in one order on every rank.
        """
        if self._future is None:
            if _is_in_hook():
                with suppress(DistError):  # it is the future's
                    self._work.wait()
            ended: Any = torch.futures.Future()
            self._future = ended.then(self._outcome)
            self._work.add_done_callback(lambda: ended.set_result(None))
            self._work._hurry()
        return self._future

    def _outcome(self, _: Any) -> list[Any]:
        error = self._work.exception()
        if error is not None:
            raise error
        return self._outputs


ENDED = TorchWork(CombinedWork([], []), [])
"""Of any operation that ended well before its call returned."""
