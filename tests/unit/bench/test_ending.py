import signal

import pytest

from allhands.bench.ending import carried_out
from allhands.bench.job import JobError


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (None, 0, ""),
        (JobError("no ranks"), 1, "prog: no ranks\n"),
        (KeyboardInterrupt(), 130, "prog: interrupted; nothing is written\n"),
    ],
)
def test_sigterm_ends_a_command_as_ctrl_c_does_and_nothing_else(
    error, code, text, capsys
):
    def act():
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        if error is not None:
            raise error

    before = signal.getsignal(signal.SIGTERM)
    assert carried_out("prog", act, "; nothing is written") == code
    assert capsys.readouterr().err == text
    assert signal.getsignal(signal.SIGTERM) is before
