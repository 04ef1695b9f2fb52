"""XcclThread: the thread that calls oneCCL for one communicator, call after call.

A call of oneCCL for CPU arrays returns when the operation has ended, and nothing can
end it before. So a thread calls it, which nobody has to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from allhands.backends.threaded_request import ThreadedRequest

__all__ = ["XcclThread"]


class XcclThread:
    """A thread that runs functions in the order in which they are given."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[ThreadedRequest | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="allhands xccl", daemon=True).start()

    def start(self, function: Callable[[], None]) -> ThreadedRequest:
        """Let it run `function` next."""
        request = ThreadedRequest(function)
        self._queue.put(request)
        return request

    def stop(self) -> None:
        """Let it end after what it was given."""
        self._queue.put(None)

    def _serve(self) -> None:
        while (request := self._queue.get()) is not None:
            request.run()
