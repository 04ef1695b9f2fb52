"""The process that `harness.prepared` has its programs forked from.

It is a main program of Python, and so are they: they end as any other does. It imports
but the module it is told: what more they began with would be there unasked.
"""

from __future__ import annotations

import marshal
import os
import socket
import sys
import types

MESSAGE_BYTES = 1 << 17


def _serve(asked: socket.socket, module: str) -> None:
    """Fork programs and reap them; returns in each of them, once it has run."""
    __import__(module)
    while True:
        message, streams, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 2)
        if not message:
            os._exit(0)
        job = marshal.loads(message)
        if isinstance(job, int):
            asked.send(marshal.dumps(os.waitpid(job, 0)[1]))
            continue
        pid = os.fork()
        if pid == 0:
            asked.close()
            return _run(job, streams)
        for fd in streams:
            os.close(fd)
        asked.send(marshal.dumps(pid))


def _run(job: dict[str, object], streams: list[int]) -> None:
    """Be the program, as if Python had been started with it."""
    for target, fd in enumerate(streams, start=1):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    if "allhands.debug.reporter" in sys.modules:  # as where it is imported
        sys.modules["allhands.debug.reporter"].answer_already()
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    code, path = job["code"], "-c"
    if os.path.isfile(code):
        path = module.__file__ = code
        with open(path) as file:
            code = file.read()
    sys.argv[:] = [path, *job["arguments"]]
    sys.path[0] = os.path.dirname(path)
    exec(compile(code, "<string>" if path == "-c" else path, "exec"), module.__dict__)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[1])
