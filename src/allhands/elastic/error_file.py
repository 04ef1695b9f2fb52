"""The file in which a scheduler looks for what ended a job.

Who starts the launcher names it by `TORCHELASTIC_ERROR_FILE`; torchrun and torch's
`record` write the same form. The launcher alone writes it, so it has the failure that
came first, and the ranks need no decorator. They do not know the path: a rank that
failed because of another one would write over what that wrote.
"""

from __future__ import annotations

import json
import time

from allhands.elastic.failure import Failure, shell_code
from allhands.elastic.report import headline

__all__ = ["ERROR_FILE", "write_error_file"]

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


def write_error_file(path: str, first: Failure) -> None:
    """Write how the rank that failed `first` ended.

    Raises:
        OSError: it cannot be written.
    """
    more = {"py_callstack": first.stderr, "timestamp": str(int(time.time()))}
    message = {
        "message": headline(first),
        "extraInfo": more,
        "errorCode": shell_code(first.exit_code),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"message": message}, file)
