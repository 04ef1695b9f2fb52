"""Prefixes, whole lines, live displays, and a console that takes no more."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.elastic.output import RankOutput, Screen


class Console:
    """A screen on a file, and what was written there."""

    def __init__(self, is_live: bool):
        self.fd = os.memfd_create("console")
        self.screen = Screen(self.fd, is_live)

    def written(self) -> bytes:
        return os.pread(self.fd, 1 << 24, 0)

    def close(self) -> None:
        os.close(self.fd)


@pytest.fixture
def plain():
    console = Console(is_live=False)
    yield console
    console.close()


@pytest.fixture
def live():
    console = Console(is_live=True)
    yield console
    console.close()


def test_plain_passes_whole_lines_only(plain):
    rank = RankOutput(plain.screen, 3)
    rank.feed(b"one\ntw")
    assert plain.written() == b"[rank3] one\n"
    rank.feed(b"o\n\nthree")
    assert plain.written() == b"[rank3] one\n[rank3] two\n[rank3] \n"
    rank.close()
    assert plain.written().endswith(b"[rank3] three\n")


def test_plain_lines_of_two_ranks_do_not_mix(plain):
    a, b = (RankOutput(plain.screen, rank) for rank in range(2))
    a.feed(b"aa")
    b.feed(b"b\n")
    a.feed(b"a\n")
    assert plain.written() == b"[rank1] b\n[rank0] aaa\n"


def test_plain_passes_a_line_without_end_in_pieces(plain):
    a, b = (RankOutput(plain.screen, rank) for rank in range(2))
    a.feed(b"x" * (3 << 20))
    a.feed(b"y")
    b.feed(b"b\n")
    a.feed(b"y\n")
    start, other, rest = plain.written().splitlines()
    assert start == b"[rank0] " + b"x" * (3 << 20)
    assert (other, rest) == (b"[rank1] b", b"[rank0] yy")


def test_live_passes_at_once(live):
    rank = RankOutput(live.screen, 0)
    rank.feed(b"Name? ")
    assert live.written() == b"[rank0] Name? "
    rank.feed(b"x\n")
    assert live.written() == b"[rank0] Name? x\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n"])
def test_line_ends(live, end):
    rank = RankOutput(live.screen, 0)
    for piece in (b"one", end, end, b"two" + end):
        rank.feed(piece)
    assert live.written() == b"[rank0] one%b[rank0] %b[rank0] two%b" % (end, end, end)


def test_prefix_follows_a_carriage_return_and_what_erases(live):
    rank = RankOutput(live.screen, 0)
    rank.feed(b"\r 10%")
    rank.feed(b"\r\x1b[2K 20%")
    assert live.written() == b"\r[rank0]  10%\r\x1b[2K[rank0]  20%"


def test_prefix_in_a_display_of_several_lines(live):
    rank = RankOutput(live.screen, 0)
    rank.feed(b"one\ntwo")
    rank.feed(b"\r\x1b[2K\x1b[1A\x1b[2Kone\ntwo")
    assert live.written() == (
        b"[rank0] one\n[rank0] two\r\x1b[2K\x1b[1A\x1b[2K[rank0] one\n[rank0] two"
    )


def test_sequences_and_characters_are_never_cut(live):
    rank = RankOutput(live.screen, 0)
    text = "\x1b[31mµ…€🙂\x1b[0m\x1b]0;title\x07\r\n".encode()
    for byte in text:
        rank.feed(bytes([byte]))
        shown = live.written().replace(b"[rank0] ", b"")
        shown.decode()
        assert re.search(rb"\x1b(\[\d*|\][^\x07]*)?\Z", shown) is None
    assert live.written().replace(b"[rank0] ", b"") == text


def test_another_rank_ends_an_open_line(live):
    a, b = (RankOutput(live.screen, rank) for rank in range(2))
    a.feed(b"50%")
    b.feed(b"hello\n")
    a.feed(b"\r60%")
    a.feed(b"\n")
    assert live.written() == b"[rank0] 50%\n[rank1] hello\n\r[rank0] 60%\n"


def test_an_interrupted_line_is_not_ended_twice(live):
    a, b = (RankOutput(live.screen, rank) for rank in range(2))
    a.feed(b"a")
    b.feed(b"b\n")
    a.feed(b"\nc\n")
    assert live.written() == b"[rank0] a\n[rank1] b\n[rank0] c\n"


def test_a_display_does_not_redraw_over_another_rank(live):
    a, b = (RankOutput(live.screen, rank) for rank in range(2))
    redraw = b"\r\x1b[2K\x1b[1A\x1b[2K\x1b[2A"
    a.feed(b"x\ny")
    b.feed(b"b\n")
    a.feed(redraw + b"x")
    assert live.written() == (
        b"[rank0] x\n[rank0] y\n[rank1] b\n\n\n\n" + redraw + b"[rank0] x"
    )


def test_a_second_display_waits_for_the_first(live):
    a, b = (RankOutput(live.screen, rank) for rank in range(2))
    a.feed(b"a1")
    b.feed(b"\rb1")
    b.feed(b"\rb2")
    a.feed(b"\ra2")
    assert live.written() == b"[rank0] a1\r[rank0] a2"
    a.feed(b"\n")
    b.feed(b"\rb3")
    assert live.written() == b"[rank0] a1\r[rank0] a2\n\r[rank1] b2\r[rank1] b3"


def test_an_idle_display_gives_way(live, monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    a, b = (RankOutput(live.screen, rank) for rank in range(2))
    a.feed(b"a")
    now += 0.9
    b.feed(b"b")
    assert live.written() == b"[rank0] a"
    now += 0.2
    b.feed(b"b")
    assert live.written() == b"[rank0] a\n[rank1] bb"


def test_a_rank_that_names_itself_is_named_once(plain):
    rank = RankOutput(plain.screen, 1)
    rank.feed(b"[rank1]: a\n[rank1]: b\n[rank2]: c\nd [rank1]: e\n")
    assert plain.written() == (
        b"[rank1] a\n[rank1] b\n[rank1] [rank2]: c\n[rank1] d [rank1]: e\n"
    )


def test_end_of_the_screen_restores_the_cursor(live):
    rank = RankOutput(live.screen, 0)
    rank.feed(b"\x1b[?25l\x1b[31mbar")
    live.screen.close()
    assert live.written().endswith(b"bar\n\x1b[?25h\x1b[0m")


def test_colour_is_the_ranks(live):
    for rank in (0, 1, 6):
        RankOutput(live.screen, rank, colour=True).feed(b"x\n")
    first, second, seventh = live.written().splitlines()
    assert first == b"\x1b[36m[rank0]\x1b[39m x"
    assert second.startswith(b"\x1b[33m")
    assert seventh.startswith(b"\x1b[36m")


def test_lines_begin_as_the_job_says(plain, live):
    RankOutput(plain.screen, 3, prefix="worker 3:").feed(b"x\ny\n")
    assert plain.written() == b"worker 3:x\nworker 3:y\n"
    RankOutput(live.screen, 0, True, "worker: ").feed(b"x\n")
    assert live.written() == b"\x1b[36mworker:\x1b[39m x\n"


PIECES = st.lists(
    st.sampled_from(
        [b"a", b"bc", b"\n", b"\r", b"\r\n", b"\x1b[2K", b"\x1b[1A", b"\xc3"]
    )
)


@pytest.mark.parametrize("is_live", [False, True])
@given(pieces=PIECES)
def test_nothing_is_lost_whatever_the_reads(is_live, pieces):
    """However the output is cut into reads: the same bytes, but for the prefix."""
    text = b"".join(pieces)
    console = Console(is_live)
    rank = RankOutput(console.screen, 0)
    for piece in pieces:
        rank.feed(piece)
    rank.close()
    shown = console.written().replace(b"[rank0] ", b"")
    console.close()
    assert shown in (text, text + b"\n")


def test_a_full_console_is_waited_for():
    reading, writing = os.pipe()
    screen = Screen(writing, live=False)
    rank = RankOutput(screen, 0)
    line = b"x" * 1015 + b"\n"
    rank.feed(line * 1024)
    assert screen.is_clogged
    total = 0
    while screen.is_clogged:
        total += len(os.read(reading, 65536))
        screen.flush()
    os.close(writing)
    while data := os.read(reading, 65536):
        total += len(data)
    os.close(reading)
    assert total == 1024 * 1024


def test_a_console_that_is_gone_is_known_as_such():
    reading, writing = os.pipe()
    os.close(reading)
    screen = Screen(writing, live=False)
    RankOutput(screen, 0).feed(b"x\n")
    os.close(writing)
    assert screen.is_lost
    assert not screen.is_clogged
