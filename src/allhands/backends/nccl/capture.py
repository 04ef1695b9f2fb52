"""Operations in CUDA graphs: a stream that is captured notes what is passed to it.

Nothing runs until the program launches the graph. So a captured operation has no end
that this package could see, and no time limit. It must not touch CPU memory, as nobody
copies the memory when the graph runs.
"""

from __future__ import annotations

__all__ = ["allow_captures", "is_captured"]


def allow_captures() -> None:
    """Let this thread call CUDA freely while another thread captures a stream.

    Without this, CUDA ends the capture with an error, unless the program captures in
    the mode "thread_local". The threads of this package do so, since they touch no
    stream that is captured.
    """
    from cuda.bindings import driver

    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    driver.cuThreadExchangeStreamCaptureMode(relaxed)


def is_captured(stream: int) -> bool:
    """Return whether a stream is being captured; CUDA's default stream never is."""
    if not stream:
        return False
    from cuda.bindings import driver

    code, status = driver.cuStreamIsCapturing(stream)
    return not int(code) and bool(int(status))
