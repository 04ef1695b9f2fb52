"""What a program is told of ranks that failed."""

import json
import pickle

import pytest

from allhands.elastic import multiprocessing
from allhands.elastic.failure import Failure
from allhands.elastic.multiprocessing.errors import (
    ChildFailedError,
    ErrorHandler,
    ProcessFailure,
    get_error_handler,
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
        "work FAILED\n"
        "rank 5 (local rank 1, pid 4711): ValueError: bad value 17\n"
        "rank 2 (local rank 1, pid 4711): exit code 3"
    )
    again = pickle.loads(pickle.dumps(ChildFailedError("work", failures, ["why"])))
    assert (str(again), again.failures) == ("work FAILED\nwhy", failures)


def test_an_error_of_a_program_finds_the_failure_that_came_first():
    late, early = failure(ended_at=9), failure(ended_at=5)
    error = ChildFailedError("work", {0: late, 1: early})
    assert error.get_first_failure() == (1, early)
    told_by_launcher = ChildFailedError("work", {0: late, 1: early}, ["rank 0 ..."])
    assert told_by_launcher.get_first_failure() == (0, late)


def test_the_message_of_an_error_stands_between_lines():
    error = ChildFailedError("work", {5: failure(exit_code=3)}, ["why"])
    border, section = "=" * 11, "-" * 11
    lines = ["", border, "work FAILED", section, "why", border]
    assert error.format_msg() == "\n".join(lines)
    long = ChildFailedError("work", {5: failure()}, ["why " * 50])
    assert long.format_msg("*", section_delim="+").splitlines()[1:4] == [
        "*" * 60,
        "work FAILED",
        "+" * 60,
    ]


# A failure that a program makes of a file


def error_file(tmp_path, content):
    path = tmp_path / "reply.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_a_failure_reads_its_file(tmp_path):
    info = {"py_callstack": "stack", "timestamp": "1700000000"}
    content = {"message": {"message": "ValueError: x", "extraInfo": info}}
    path = error_file(tmp_path, content)
    read = ProcessFailure(0, 11, 1, path)
    assert (read.message, read.timestamp) == (content["message"], 1_700_000_000)
    assert (read.error_file, read.error_file_data) == (path, content)
    line = ProcessFailure(0, 11, 1, error_file(tmp_path, {"message": "a line"}))
    assert (line.message, line.timestamp) == ("a line", 0)
    with pytest.raises(KeyError, match="message"):
        ProcessFailure(0, 11, 1, error_file(tmp_path, {"other": 1}))


def test_a_failure_without_a_file_tells_of_its_end(tmp_path):
    killed = ProcessFailure(0, 11, -9, str(tmp_path / "missing.json"))
    assert killed.error_file == "<N/A>"
    assert killed.message == "Signal 9 (SIGKILL) received by PID 11"
    assert killed.timestamp > 1_700_000_000
    assert ProcessFailure(0, 11, 3, "<N/A>").message == "exit code 3"
    assert ProcessFailure(0, 11, -999, "<N/A>").signal_name() == "<N/A>"


def test_it_is_found_where_torch_has_it():
    assert multiprocessing.ProcessFailure is ProcessFailure


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


def test_record_returns_from_an_exit_with_0(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    assert main(SystemExit(0)) is None
    for code in 3, None, "text":
        with pytest.raises(SystemExit) as caught:
            main(SystemExit(code))
        assert caught.value.code == code


class Listening(ErrorHandler):
    def __init__(self):
        self.heard = []

    def initialize(self):
        self.heard.append("begins")

    def record_exception(self, e):
        self.heard.append(e)


def test_record_tells_the_handler_of_the_program():
    handler, error = Listening(), KeyError("missing")
    with pytest.raises(KeyError):
        record(main.__wrapped__, error_handler=handler)(error)
    assert handler.heard == ["begins", error]
    assert type(get_error_handler()) is ErrorHandler


def test_record_passes_the_file_of_a_child_on(tmp_path, monkeypatch):
    info = {"py_callstack": "stack", "timestamp": "1700000000"}
    child = error_file(
        tmp_path, {"message": {"message": "ValueError: x", "extraInfo": info}}
    )
    own = tmp_path / "own.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(own))
    with pytest.raises(ChildFailedError):
        main(ChildFailedError("work", {0: ProcessFailure(0, 1, 7, child)}))
    message = json.loads(own.read_text())["message"]
    assert (message["message"], message["errorCode"]) == ("ValueError: x", 7)


def test_a_handler_copies_a_file_as_it_is_without_an_exit_code(tmp_path, monkeypatch):
    own = tmp_path / "own.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(own))
    child = error_file(tmp_path, {"message": "a line"})
    get_error_handler().dump_error_file(child)
    assert json.loads(own.read_text()) == {"message": "a line"}
    get_error_handler().dump_error_file(child, 7)  # a line has no place for it
    assert json.loads(own.read_text()) == {"message": "a line"}


def test_a_handler_warns_where_it_can_do_nothing(tmp_path, monkeypatch):
    child = error_file(tmp_path, {"message": "a line"})
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path))
    with pytest.warns(UserWarning, match="Unable to write error to file. IsADirectory"):
        get_error_handler().dump_error_file(child)
    monkeypatch.setattr("sys.stderr", None)
    with pytest.warns(UserWarning, match="Unable to enable fault handler. RuntimeErro"):
        get_error_handler().initialize()
