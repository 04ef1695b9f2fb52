import pytest

from allhands.elastic.logs import DefaultLogsSpecs, Std


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("0", Std.NONE),
        ("3", Std.ALL),
        ("0:1,2:3", {0: Std.OUT, 2: Std.ALL}),
    ],
)
def test_notation(text, choice):
    assert Std.from_str(text) == choice


@pytest.mark.parametrize("text", ["", "4", "-1", "a", "0:4", "0:1,", "1:", "0:1:2"])
def test_notation_that_means_nothing(text):
    with pytest.raises(ValueError, match="does not match a choice of streams"):
        Std.from_str(text)


# (redirects, tee) for stdout: does it go to a file, is it shown
@pytest.mark.parametrize(
    ("redirects", "tee", "to_file", "to_console"),
    [
        (Std.NONE, Std.NONE, False, True),
        (Std.OUT, Std.NONE, True, False),
        (Std.ERR, Std.NONE, False, True),
        (Std.NONE, Std.OUT, True, True),
        (Std.ALL, Std.ALL, True, True),
        ({1: Std.OUT}, Std.NONE, False, True),
        (Std.NONE, {0: Std.OUT}, True, True),
    ],
)
def test_where_stdout_goes(redirects, tee, to_file, to_console):
    logs = DefaultLogsSpecs("d", redirects, tee)
    assert logs.to_file(0, Std.OUT) == to_file
    assert logs.to_console(0, Std.OUT) == to_console


def test_ranks_left_out_of_the_console_still_write_files():
    logs = DefaultLogsSpecs("d", tee=Std.ALL, local_ranks_filter=frozenset({1}))
    assert logs.to_file(0, Std.OUT)
    assert not logs.to_console(0, Std.OUT)
    assert logs.to_console(1, Std.OUT)
