"""What programs of torch.distributed.elastic.multiprocessing use of the launcher."""

from __future__ import annotations

import signal

from allhands.elastic.logs import DefaultLogsSpecs, Std

# In `errors`, too, where it is documented.
from allhands.elastic.process_failure import ProcessFailure as ProcessFailure

__all__ = ["DefaultLogsSpecs", "SignalException", "Std"]


class SignalException(Exception):
    """A signal to the launcher has ended the job that this process started.

    Attributes:
        sigval: the signal.
    """

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval
