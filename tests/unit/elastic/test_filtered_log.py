"""Lines that are picked out of what ranks write."""

import pytest

from allhands.elastic.filtered_log import FilteredLog, parse_words
from allhands.elastic.log_file import LogFile


def filtered(path, rank, words):
    return FilteredLog(LogFile(str(path), pytest.fail), f"[rank{rank}] ", words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("apple", ["apple"]),
        ("apple,orange", ["apple", "orange"]),
        ("a,,b", ["a,b"]),
        ("a,,,b", ["a,", "b"]),
        (",a,", ["a"]),
    ],
)
def test_words(text, words):
    assert parse_words(text) == words


def test_lines_come_whole_however_they_are_read(tmp_path):
    path = tmp_path / "folder" / "filtered.log"
    logs = [filtered(path, rank, ["b", "\N{SNOWMAN}"]) for rank in (0, 1)]
    for piece in ("a\na", "bc\nd", "\nb\n"):
        for log in logs:
            log.feed(piece.encode())
    logs[0].feed("x\N{SNOWMAN}".encode())
    for log in logs:
        log.close()
    assert path.read_text() == (
        "[rank0] abc\n[rank1] abc\n[rank0] b\n[rank1] b\n[rank0] x\N{SNOWMAN}\n"
    )


def test_the_file_of_an_earlier_run_is_kept(tmp_path):
    path = tmp_path / "filtered.log"
    for rank in range(2):
        log = filtered(path, rank, ["b"])
        log.feed(b"b\n")
        log.close()
    assert path.read_text() == "[rank0] b\n[rank1] b\n"


def test_a_line_without_an_end_takes_bounded_memory(tmp_path):
    path = tmp_path / "filtered.log"
    log = filtered(path, 0, ["b"])
    for _ in range(40):
        log.feed(b"a" * (1 << 16))
        assert len(log._held) <= 1 << 20
    log.close()
    assert path.read_bytes() == b""
