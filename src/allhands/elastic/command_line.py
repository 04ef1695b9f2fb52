"""CommandLineParser: parses every command of this package, and guesses at typos."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["CommandLineParser", "did_you_mean"]


class CommandLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose error for an unknown option names the closest one."""

    def parse_args(  # type: ignore[override]  # only the namespace's type differs
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """Parse `args` (default: this process's); an error ends the process."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            guess = self._guess(unknown)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{guess}")
        return parsed

    def _guess(self, unknown: Iterable[str]) -> str:
        options = [text.partition("=")[0] for text in unknown if text[:1] == "-"]
        guesses = (did_you_mean(each, self._option_string_actions) for each in options)
        return next(filter(None, guesses), "")


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return the end of an error text that names the closest known word.

    It is empty if none is close.

    ```python
    did_you_mean("tpo", ["top", "trace"])  # "; did you mean top?"
    ```
    """
    from difflib import get_close_matches  # here: only mistakes need it

    close = get_close_matches(text, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
