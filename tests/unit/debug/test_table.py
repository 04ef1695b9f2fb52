"""What `allhands debug` shows of the ranks, beside the verdict."""

import io

import pytest
from rich.console import Console

from allhands.backends.frames import SourceLine
from allhands.debug.dumps import Dump, Failure, Thread
from allhands.debug.table import ranks_table, stack_lines
from allhands.elastic.records import NO_ANSWER

FRAMES = (
    SourceLine("step", "/a/train.py", 31),
    SourceLine("<module>", "/a/train.py", 40),
)


def rank(number, failure=None):
    main = Thread("MainThread", True, "", FRAMES)
    return Dump(number, 9, "here", 1, "signal", 10**11, {}, (), (main,), failure)


@pytest.mark.parametrize("columns", [80, 200])
def test_a_long_reason_leaves_the_other_columns_readable(columns):
    output = io.StringIO()
    ending = f"{NO_ANSWER}, after barrier #1 on group '0' (/a/train.py:31)"
    table = ranks_table([rank(0)], {1: ending})
    Console(file=output, width=columns, markup=False).print(table)
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    [silent] = [line for line in lines if line.split()[:1] == ["1"]]
    assert silent.split()[1:3] == ["no", "record"]
    where = lines[1].index("where")
    text = "".join(line[where:].strip() for line in lines)
    assert "train.py:31)" in text


def test_the_stacks_of_a_few_of_the_blamed_are_shown():
    raised = Failure("ValueError", "bad", (), "", FRAMES[1:])
    dumps = [rank(n, raised if n == 3 else None) for n in range(9)]
    assert list(stack_lines(dumps, [3])) == [
        "stack of rank 3, the innermost line first:",
        "  /a/train.py:40  <module>",
    ]
    assert list(stack_lines(dumps, [1])) == [
        "stack of rank 1, the innermost line first:",
        "  /a/train.py:31  step",
        "  /a/train.py:40  <module>",
    ]
    assert len(list(stack_lines(dumps, range(9)))) == 11  # of four
    assert not list(stack_lines(dumps, ()))
