import json
import os
import resource
import signal
import subprocess
from types import SimpleNamespace

import pytest

from allhands.elastic import record_memory
from allhands.elastic.record_collection import Records
from allhands.elastic.record_memory import Mark, RecordMemory, mark_of, record_in


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "attempt_0"
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def no_rank_of_another_test(monkeypatch):
    """This process may have begun to answer as a rank."""
    monkeypatch.setattr(record_memory, "_NAME", "allhands.record-of-a-test")
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR2, before)


def asked(folder, pid):
    """The signals that are sent to a rank."""
    sent = []
    rank = SimpleNamespace(pid=pid, rank=0, send=lambda n, to_group: sent.append(n))
    Records(str(folder), "unused").ask([rank])
    return sent


def test_a_rank_that_answers_is_asked(folder):
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    memory = RecordMemory()
    try:
        assert asked(folder, os.getpid()) == [signal.SIGUSR2]
    finally:
        memory.close()
        assert asked(folder, os.getpid()) == []
        signal.signal(signal.SIGUSR2, before)


def test_a_rank_without_a_handler_is_not_asked(folder):
    memory = RecordMemory()
    try:
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        assert asked(folder, os.getpid()) == []
    finally:
        memory.close()


def test_a_child_with_its_parents_memory_is_not_asked(folder):
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    memory = RecordMemory()
    child = os.fork()  # as it is before it becomes another program
    if child == 0:
        signal.pause()
    try:
        assert asked(folder, os.getpid()) == [signal.SIGUSR2]
        assert asked(folder, child) == []
        assert record_in(child) == ""
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        memory.close()
        signal.signal(signal.SIGUSR2, before)


def test_a_rank_that_is_gone_is_not_asked(folder):
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert asked(folder, process.pid) == []


def test_ranks_that_share_a_cpu_get_longer_to_answer(folder, monkeypatch):
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    memory = RecordMemory()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    try:
        assert limit(folder, 2) == 1.0
        assert limit(folder, 60) == 6.0
    finally:
        memory.close()
        signal.signal(signal.SIGUSR2, before)


def limit(folder, size):
    """What so many ranks have to answer, who all are this process."""
    records = Records(str(folder), "unused")
    ranks = range(size)
    send = lambda *_, **__: None  # noqa: E731
    records.ask(SimpleNamespace(pid=os.getpid(), rank=r, send=send) for r in ranks)
    return records.limit


def test_what_cannot_be_a_record_is_left_out(folder, tmp_path):
    (folder / "rank_0.json").write_text('{"rank": 0}')
    (folder / "rank_7.json").write_text('{"rank":\r\n\n7, "a": "\u2028"}')
    (folder / "rank_1.json").write_text("[" * 100_000 + "]" * 100_000)
    (folder / "rank_2.json").mkdir()
    (folder / "rank_3.json").write_bytes(b'{"rank": "\xff"}')
    (folder / "rank_4.json").write_text("[7]")
    (folder / "rank_5.json").write_text('{"rank": 5')
    os.mkfifo(folder / "rank_6.json")
    file = tmp_path / "all.json"
    assert Records(str(folder), str(file)).gather({1: "odd"}) == str(file)
    ranks = [{"rank": 0}, {"rank": 7, "a": "\u2028"}]
    told = {"ranks": ranks, "endings": {"1": "odd"}}
    assert json.loads(file.read_text()) == told


def test_a_file_that_cannot_be_written_whole_is_not_written(folder, tmp_path):
    (folder / "rank_0.json").write_text('{"rank": 0}')
    file = tmp_path / "all.json"
    file.write_text("of an earlier run")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            Records(str(folder), str(file)).gather({})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_text() == "of an earlier run"


def test_what_is_put_there_last_is_read():
    memory = RecordMemory()
    try:
        for text in ("x" * 1_000_000, '{"rank": "größe"}', ""):
            memory.write(text)
            assert record_in(os.getpid()) == text
    finally:
        memory.close()
    assert record_in(os.getpid()) == ""


def test_a_record_that_is_replaced_while_it_is_read_is_read_again(monkeypatch):
    """Half of the old one and half of the new one may look like a record, too."""
    memory = RecordMemory()

    def read_slowly(path):
        with open(path, "rb", buffering=0) as file:
            begun = file.read(len('{"time": 1111') + 8)
            memory.write('{"time": 22222222}')
            return (begun + file.read()).decode()

    try:
        memory.write('{"time": 11111111}')
        with monkeypatch.context() as slow:
            slow.setattr(record_memory, "read_regular", read_slowly)
            assert record_in(os.getpid()) == ""
        assert record_in(os.getpid()) == '{"time": 22222222}'
    finally:
        memory.close()


@pytest.fixture
def handled():
    signal.signal(signal.SIGUSR2, lambda *_: None)  # `no_rank_of_another_test` ends it


@pytest.mark.usefixtures("handled")
def test_a_rank_says_which_it_is_once_it_knows():
    memory = RecordMemory()
    before = len(os.listdir("/proc/self/fd"))
    try:
        assert mark_of(os.getpid()) is None
        for mark in (Mark("0123456789abcdef", 17), Mark("f" * 16, 0)):
            memory.mark(mark)
            assert mark_of(os.getpid()) == mark
            memory.write("{}")
            assert record_in(os.getpid()) == "{}"
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        assert mark_of(os.getpid()) is None
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        memory.close()


@pytest.mark.usefixtures("handled")
def test_without_a_descriptor_a_rank_stays_as_it_was():
    memory = RecordMemory()
    memory.write("{}")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        with pytest.raises(OSError, match="Too many open files"):
            memory.mark(Mark("f" * 16, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert record_in(os.getpid()) == "{}"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        memory.close()


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", ".f", f".{'f' * 16}", f".{'f' * 15}.1", f".{'f' * 17}.1"),
        *(f".{'f' * 16}.-1", f".{'f' * 16}.{'9' * 99}", f".{'f' * 16}.1.2", "0.f.1"),
        f".{'f' * 16}.\u0661",
    ],
)
@pytest.mark.usefixtures("handled")
def test_a_name_that_no_rank_has_says_nothing(name):
    fd = os.memfd_create(f"{record_memory._NAME}.{os.getpid()}{name}")
    try:
        assert mark_of(os.getpid()) is None
    finally:
        os.close(fd)
