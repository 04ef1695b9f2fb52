"""What the drivers that kill ranks have in common: forked ranks that tell by files.

`kills.py` and `torch_kills.py` import it from beside them.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Teller:
    """A rank that tells the driver by files in a folder."""

    rank: int
    folder: Path

    def tell(self, what: str, value: object) -> None:
        """Leave a value for the driver, all of it at once."""
        path = self.folder / f"{self.rank}.{what}"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(value))
        draft.rename(path)

    def told(self, what: str) -> Any:
        """Return what the rank has told; None if it has not."""
        path = self.folder / f"{self.rank}.{what}"
        return json.loads(path.read_text()) if path.exists() else None


class Child(BaseException):
    """Raised in a forked process: leaves everything that the driver has done."""

    def __init__(self, rank: Any) -> None:
        self.rank = rank


def fork(rank: Teller) -> int:
    """Return the pid of a child, which raises `Child(rank)`; its stderr is a file."""
    pid = os.fork()
    if pid == 0:
        errors = os.open(rank.folder / f"{rank.rank}.stderr", os.O_CREAT | os.O_WRONLY)
        os.dup2(errors, 2)
        raise Child(rank)
    return pid


def drive(driver: Callable[[], int]) -> int:
    """Run the driver, or in a process that it forks the rank; returns the status."""
    gc.collect()
    gc.freeze()  # a rank that ends would copy all that the driver has loaded
    try:
        return driver()
    except Child as child:
        rank = child.rank  # outside the block: what it raises is not due to Child
    rank.run()
    return 0


def until(is_so: Callable[[], object], limit: float) -> bool:
    """Wait for it; return False after `limit` seconds."""
    end = time.monotonic() + limit
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
