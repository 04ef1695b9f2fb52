"""A Python function as what ranks run: it goes to them, and its results come back.

Each rank is a new Python process. It inherits two anonymous files: one with the pickled
function and its arguments, the same for all ranks, and one of its own for the pickled
result. As in `multiprocessing`, it imports the main module of the program that starts
it, under another name, so that it finds functions that are defined there.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["RemoteFunction", "check_not_importing", "name_of", "run_rank"]

_START = "from allhands.launcher.function import run_rank; run_rank({}, {})"

# Whether this process is a rank that still imports the program's main module.
_is_importing = False


class RemoteFunction:
    """A call of a function on each rank of this node. Use it as a context manager."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], num_workers: int
    ) -> None:
        """Pickle the call.

        Raises:
            ValueError: the function or an argument cannot be pickled.
            OSError: this process may have too few file descriptors.
        """
        prepared = _preparation()
        _check_importable(function, prepared)
        call = _pickled(function, args)
        self._files: list[int] = []
        try:
            for name in ("call", *(f"result-{rank}" for rank in range(num_workers))):
                self._files.append(os.memfd_create(f"allhands-{name}"))
            self._call, *self._results = self._files
            _write(self._call, pickle.dumps(prepared) + call)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> RemoteFunction:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def command(self, local_rank: int) -> list[str]:
        """Return the argument list of a rank."""
        start = _START.format(*self.inherited(local_rank))
        return [sys.executable, "-u", "-c", start]

    def inherited(self, local_rank: int) -> tuple[int, int]:
        """Return the descriptors that a rank inherits."""
        return self._call, self._results[local_rank]

    def result(self, local_rank: int) -> Any:
        """Return what the function returned on a rank that ended with exit code 0.

        None if the rank ended before, for instance by `sys.exit()`.
        """
        with _opened(self._results[local_rank], "rb") as file:
            text = file.read()
        # The rank knows the main module by this name; see `run_rank`.
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
        return pickle.loads(text) if text else None

    def _close(self) -> None:
        while self._files:
            os.close(self._files.pop())


def run_rank(call: int, result: int) -> None:
    """Call the function in this process, a rank, and leave what it returns.

    Args:
        call: the descriptor of the file with the function and its arguments.
        result: that of the file for the result.
    """
    from multiprocessing import spawn  # here: `allhands run` does without

    global _is_importing
    os.ftruncate(result, 0)  # of a rank before a restart
    with _opened(call, "rb") as file:
        _is_importing = True
        spawn.prepare(pickle.load(file))
        function, args = pickle.load(file)
        _is_importing = False
    for descriptor in (call, result):
        os.set_inheritable(descriptor, False)
    returned = function(*args)
    _write(result, _pickled_result(returned, function))


def check_not_importing() -> None:
    """Refuse to start ranks while a rank imports the program that has started it.

    Raises:
        RuntimeError: this process is such a rank.
    """
    if _is_importing:
        raise RuntimeError(
            "elastic_launch was called while a rank imports the main module of the "
            "program that started it, so that ranks would start ranks. Each rank "
            "imports that module to find the function. Put the call below "
            'if __name__ == "__main__":'
        )


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name for messages."""
    return str(getattr(function, "__qualname__", None) or function)


def _preparation() -> dict[str, Any]:
    """Return what `spawn.prepare` is to do in a rank, before it unpickles the call.

    `spawn` would also pass on, and so settle for good, how `multiprocessing` starts
    processes.
    """
    prepared: dict[str, Any] = {
        "sys_path": [path or os.getcwd() for path in sys.path],
        "sys_argv": sys.argv,
    }
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    path = getattr(main, "__file__", None)
    if name is not None:
        prepared["init_main_from_name"] = name
    elif path is not None and os.path.isfile(path):
        prepared["init_main_from_path"] = os.path.abspath(path)
    return prepared


def _check_importable(function: Callable[..., Any], prepared: dict[str, Any]) -> None:
    has_main = any(key.startswith("init_main") for key in prepared)
    if getattr(function, "__module__", None) == "__main__" and not has_main:
        raise ValueError(
            f"elastic_launch cannot pass {name_of(function)} to new processes: it is "
            "defined in an interactive session, and they have no file to import. "
            "Define it in a module, and import it from there"
        )


def _pickled(function: Callable[..., Any], args: Sequence[Any]) -> bytes:
    try:
        return _dumped((function, tuple(args)))
    except TypeError as error:
        raise ValueError(
            f"elastic_launch cannot pass {name_of(function)} and its arguments to new "
            f"processes: {error}. Define the function at the top level of a module, "
            "and pass arguments that can be pickled"
        ) from error


def _pickled_result(returned: Any, function: Callable[..., Any]) -> bytes:
    try:
        return _dumped(returned)
    except TypeError as error:
        raise TypeError(
            f"{name_of(function)} returned a {type(returned).__name__}, which cannot "
            f"be passed to the program that started this rank: {error}. Return what "
            "can be pickled"
        ) from error


def _dumped(value: Any) -> bytes:
    """Pickle `value`; all that `pickle` raises where it cannot is a TypeError."""
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError) as error:
        raise TypeError(str(error)) from error


def _write(descriptor: int, text: bytes) -> None:
    with _opened(descriptor, "wb") as file:
        file.write(text)


def _opened(descriptor: int, mode: str) -> Any:
    """Open the file anew: another process has its own position in it."""
    return open(f"/proc/self/fd/{descriptor}", mode)
