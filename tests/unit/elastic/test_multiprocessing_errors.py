"""What a program is told of ranks that failed."""

import json
import pickle

import pytest

from allhands.elastic.failure import Failure
from allhands.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
    record,
)
from allhands.elastic.process_failure import process_failure

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 8, in <module>
    step()
ValueError: bad value 17
"""


def failure(**fields):
    given = {
        "rank": 5,
        "local_rank": 1,
        "host": "node1",
        "pid": 4711,
        "exit_code": 1,
        "elapsed": 3.2,
        "stderr": "",
        "ended_at": 1_700_000_000.5,
    }
    return process_failure(Failure(**{**given, **fields}))


def test_an_exception_is_told_as_torchrun_does():
    told = failure(stderr=TRACEBACK)
    assert told.message["message"] == "ValueError: bad value 17"
    assert told.message["extraInfo"]["py_callstack"] == TRACEBACK
    assert told.error_file_data["message"] is told.message
    assert told.timestamp == 1_700_000_000
    assert told.timestamp_isoformat()[10] == "_"
    assert (told.signal_name(), told.error_file) == ("<N/A>", "<N/A>")


def test_a_signal_and_an_exit_code_are_lines():
    killed = failure(exit_code=-9, stderr=TRACEBACK)
    assert killed.message == "Signal 9 (SIGKILL) received by PID 4711"
    assert killed.signal_name() == "SIGKILL"
    assert failure(exit_code=3).message == "exit code 3"


def test_an_error_names_all_failures_and_the_first():
    failures = {5: failure(stderr=TRACEBACK), 2: failure(exit_code=3)}
    error = ChildFailedError("work", failures)
    assert error.get_first_failure() == (5, failures[5])
    assert str(error) == (
        "work failed\n"
        "rank 5 (local rank 1, pid 4711): ValueError: bad value 17\n"
        "rank 2 (local rank 1, pid 4711): exit code 3"
    )
    again = pickle.loads(pickle.dumps(ChildFailedError("work", failures, ["why"])))
    assert (str(again), again.failures) == ("work failed\nwhy", failures)


def test_an_error_without_failures_is_refused():
    with pytest.raises(ValueError, match="of 'work': want at least one failure"):
        ChildFailedError("work", {})


@record
def main(error=None):
    if error is not None:
        raise error
    return 5


def test_record_writes_the_exception_and_lets_it_pass(tmp_path, monkeypatch):
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    assert main() == 5
    assert not path.exists()
    with pytest.raises(KeyError):
        main(KeyError("missing"))
    message = json.loads(path.read_text())["message"]
    assert message["message"] == "KeyError: 'missing'"
    assert "in main\n" in message["extraInfo"]["py_callstack"]
    assert int(message["extraInfo"]["timestamp"]) > 1_700_000_000


def test_record_leaves_what_the_launcher_has_written(tmp_path, monkeypatch):
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    with pytest.raises(ChildFailedError):
        main(ChildFailedError("work", {0: ProcessFailure(0, 1, 1, "<N/A>")}))
    assert not path.exists()


def test_record_without_a_file_changes_nothing(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    with pytest.raises(KeyError):
        main(KeyError("missing"))
