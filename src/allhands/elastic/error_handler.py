"""ErrorHandler: what `record` does with an exception; a program may bring its own."""

from __future__ import annotations

import faulthandler
import json
import os
import time
import warnings
from typing import Any

from allhands.elastic.error_file import ERROR_FILE, write_exception

__all__ = ["ErrorHandler", "get_error_handler"]


class ErrorHandler:
    """Writes what ends this process to the file that `TORCHELASTIC_ERROR_FILE` names.

    Subclasses may override `initialize` and `record_exception`. Where the variable is
    not set, nothing is written.

    ```python
    from allhands.elastic.multiprocessing.errors import ErrorHandler, record


    class Telling(ErrorHandler):
        def record_exception(self, e):
            tell_the_scheduler(e)
            super().record_exception(e)


    def main():
        train()


    record(main, error_handler=Telling())()
    ```
    """

    def initialize(self) -> None:
        """Prepare this process; `record` calls it before the function.

        A crash, such as by SIGSEGV, then prints the stacks of all threads on stderr.
        """
        try:
            faulthandler.enable(all_threads=True)
        except Exception as error:  # no stderr, or one that is no file
            _warn("Unable to enable fault handler", error)

    def record_exception(self, e: BaseException) -> None:
        """Write `e` to the file, as torchrun does.

        Raises:
            OSError: the file cannot be written.
        """
        path = self._get_error_file_path()
        if path:
            write_exception(path, e, time.time())

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Copy the file of a process that this one had started to its own file.

        Args:
            rootcause_error_file: the file of the process that failed first.
            error_code: what to note as its exit code; 0: what the file has.

        Raises:
            OSError: the other file cannot be read. If this process's own cannot be
                written, a warning says so.
            ValueError: the other file is no JSON.
        """
        with open(rootcause_error_file, encoding="utf-8") as file:
            cause = json.load(file)
        if error_code:
            self.override_error_code_in_rootcause_data(
                rootcause_error_file, cause, error_code
            )
        path = self._get_error_file_path()
        if path:
            self._write_error_file(path, json.dumps(cause))

    def override_error_code_in_rootcause_data(
        self,
        rootcause_error_file: str,
        rootcause_error: dict[str, Any],
        error_code: int = 0,
    ) -> None:
        """Note `error_code` in the content of a file, if it has a place for it."""
        message = rootcause_error.get("message")
        if isinstance(message, dict):
            message["errorCode"] = error_code

    def _get_error_file_path(self) -> str | None:
        return os.environ.get(ERROR_FILE)

    def _write_error_file(self, file_path: str, error_msg: str) -> None:
        try:
            with open(file_path, "w", encoding="utf-8") as file:
                file.write(error_msg)
        except Exception as error:
            _warn("Unable to write error to file", error)


def get_error_handler() -> ErrorHandler:
    """Return the handler that `record` has if it is given none."""
    return ErrorHandler()


def _warn(what: str, error: Exception) -> None:
    warnings.warn(f"{what}. {type(error).__name__}: {error}", stacklevel=3)
