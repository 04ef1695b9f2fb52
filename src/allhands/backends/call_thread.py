"""CallThread: a thread that calls a library for one communicator, call after call.

Some calls of libraries return only when other ranks have come, and nothing can end them
before. So a thread calls them, which nobody has to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from allhands.backends.threaded_request import ThreadedRequest

__all__ = ["CallThread"]


class CallThread:
    """A thread that runs functions in the order in which they are given."""

    def __init__(self, library: str) -> None:
        self._queue: SimpleQueue[ThreadedRequest | None] = SimpleQueue()
        threading.Thread(
            target=self._serve, name=f"allhands {library}", daemon=True
        ).start()

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
