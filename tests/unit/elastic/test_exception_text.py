"""What real interpreters print, and what is read out of it."""

import subprocess
import sys
import textwrap

import pytest

from allhands.elastic.exception_text import last_line, parse_exception

# (program, type, message, line of the user's frame), run by this interpreter.
PROGRAMS = {
    "plain": ("raise ValueError('bad 3')", "ValueError", "bad 3", 1),
    "no message": ("raise KeyboardInterrupt", "KeyboardInterrupt", "", 1),
    "assertion": ("x = 1\nassert x == 2", "AssertionError", "", 2),
    "lines": (
        "raise ValueError('one\\n\\n  two: x\\nthree')",
        "ValueError",
        "one\n\n  two: x\nthree",
        1,
    ),
    "nested": (
        "def f():\n    g()\ndef g():\n    1 / 0\nf()",
        "ZeroDivisionError",
        "division by zero",
        4,
    ),
    "recursion": (
        "def f():\n    f()\nf()",
        "RecursionError",
        "maximum recursion depth exceeded",
        2,
    ),
    "library": ("import json\njson.loads('{')", "json.decoder.JSONDecodeError", ..., 2),
    "during": (
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k')",
        "KeyError",
        "'k'",
        4,
    ),
    "cause": (
        "try:\n    1 / 0\nexcept Exception as e:\n    raise OSError('io') from e",
        "OSError",
        "io",
        4,
    ),
    "own class": (
        "class E(Exception): pass\nclass A:\n  class B(E): pass\nraise A.B('m: n')",
        "A.B",
        "m: n",
        4,
    ),
    "local class": (
        "def f():\n    class E(Exception): pass\n    raise E('m')\nf()",
        "f.<locals>.E",
        "m",
        3,
    ),
    "syntax": ("x = 1\nx = (2", "SyntaxError", "'(' was never closed", 2),
    "indentation": ("if 1:\nx = 2", "IndentationError", ..., 2),
    "syntax below": ("1\ncompile('a b', 's.py', 'exec')", "SyntaxError", ..., ...),
    "import": ("1\nimport nowhere", "ModuleNotFoundError", ..., 2),
    "in a thread first": (
        "import threading\n"
        "t = threading.Thread(target=lambda: 1 / 0)\n"
        "t.start(); t.join()\n"
        "raise ValueError('main')",
        "ValueError",
        "main",
        4,
    ),
    "ignored after": (
        "class A:\n"
        "    def __del__(self): raise OSError('in del')\n"
        "a = A()\n"
        "raise ValueError('main')",
        "ValueError",
        "main",
        4,
    ),
    "logged before": (
        "import logging\n"
        "try: 1 / 0\n"
        "except Exception: logging.exception('oops')\n"
        "raise ValueError('main')",
        "ValueError",
        "main",
        4,
    ),
    "subprocess": (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', '1/0'])\n"
        "raise ValueError('parent')",
        "ValueError",
        "parent",
        3,
    ),
}
if sys.version_info >= (3, 11):
    PROGRAMS["notes"] = (
        "e = ValueError('m')\ne.add_note('a note')\nraise e",
        "ValueError",
        "m\na note",
        3,
    )
    PROGRAMS["group"] = (
        "def f():\n"
        "    raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])\n"
        "f()",
        "ExceptionGroup",
        "several (2 sub-exceptions)\nValueError: a\nTypeError: b",
        2,
    )
    PROGRAMS["group of raised ones"] = (
        "errors = []\n"
        "for t in (ValueError, TypeError):\n"
        "    try: raise t('m')\n"
        "    except Exception as e: errors.append(e)\n"
        "raise ExceptionGroup('several', errors)",
        "ExceptionGroup",
        "several (2 sub-exceptions)\nValueError: m\nTypeError: m",
        5,
    )


def stderr_of(path, *options: str, **variables: str) -> str:
    command = [sys.executable, *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_reads_what_the_interpreter_prints(tmp_path, name):
    code, kind, message, line = PROGRAMS[name]
    path = tmp_path / "program.py"
    path.write_text(code)
    text = stderr_of(path)
    raised = parse_exception(text)
    assert raised is not None, text
    assert raised.type == kind, text
    assert raised.message.startswith(message) if message is not ... else True, text
    assert raised.where is not None
    if line is not ...:
        assert (raised.where.file, raised.where.line) == (str(path), line), text


@pytest.mark.parametrize("prefix", ["[rank3]: ", "[rank11]: "])
def test_reads_lines_with_a_rank(tmp_path, prefix):
    path = tmp_path / "program.py"
    path.write_text("def f():\n    raise ValueError('a\\nb')\nf()")
    text = textwrap.indent(stderr_of(path), prefix, lambda line: True)
    raised = parse_exception(text)
    assert raised is not None
    assert (raised.type, raised.message) == ("ValueError", "a\nb")
    assert str(raised.where) == f"{path}:2, in f: raise ValueError('a\\nb')"


def test_reads_colours(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("def f(x):\n    return 1 / x\nf(0)")
    raised = parse_exception(stderr_of(path, FORCE_COLOR="1"))
    assert raised is not None
    assert (raised.type, raised.where.line) == ("ZeroDivisionError", 2)


# As CPython 3.13 prints it with colours on.
COLOURED = (
    "Traceback (most recent call last):\n"
    '  File \x1b[35m"/home/u/p.py"\x1b[0m, line \x1b[35m3\x1b[0m, '
    "in \x1b[35m<module>\x1b[0m\n"
    "    \x1b[31mf\x1b[0m\x1b[1;31m(0)\x1b[0m\n"
    "    \x1b[31m~\x1b[0m\x1b[1;31m^^^\x1b[0m\n"
    '  File \x1b[35m"/home/u/p.py"\x1b[0m, line \x1b[35m2\x1b[0m, in \x1b[35mf\x1b[0m\n'
    "    return \x1b[31m1 \x1b[0m\x1b[1;31m/\x1b[0m\x1b[31m x\x1b[0m\n"
    "           \x1b[31m~~\x1b[0m\x1b[1;31m^\x1b[0m\x1b[31m~~\x1b[0m\n"
    "\x1b[1;35mZeroDivisionError\x1b[0m: \x1b[35mdivision by zero\x1b[0m\n"
)


def test_reads_colours_of_newer_interpreters():
    raised = parse_exception(COLOURED)
    assert raised is not None
    assert raised.message == "division by zero"
    assert str(raised.where) == "/home/u/p.py:2, in f: return 1 / x"


FATAL = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f2a5c1e4740 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 517 in string_at
  File "/home/u/p.py", line 4 in f
  File "/home/u/p.py", line 6 in <module>

Extension modules: numpy._core._multiarray_umath (total: 12)
"""


def test_reads_what_faulthandler_dumps():
    raised = parse_exception(FATAL, foreign=["/usr/lib/python3.11/"])
    assert raised is not None
    assert raised.message == "Segmentation fault"
    assert (raised.where.file, raised.where.line) == ("/home/u/p.py", 4)


LIBRARY_ONLY = """\
Traceback (most recent call last):
  File "/v/lib/python3.11/site-packages/tool/__main__.py", line 5, in <module>
    main()
RuntimeError: no user here
"""


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_names_the_users_line_that_called_an_installed_package(folder):
    raised = parse_exception(
        f"""Traceback (most recent call last):
  File "/home/u/train.py", line 7, in <module>
    tool.go()
  File "/v/lib/python3.11/{folder}/tool/core.py", line 5, in go
    raise ValueError("x")
ValueError: x
"""
    )
    assert raised is not None
    assert (raised.where.file, raised.where.line) == ("/home/u/train.py", 7)


PACKAGES = "/v/lib/python3.11/site-packages"
INSTALLED = f"""Traceback (most recent call last):
{{start}}  File "{PACKAGES}/trainer/cli.py", line 5, in main
    step()
  File "{PACKAGES}/trainer/loop.py", line 9, in step
    tool.go()
  File "{PACKAGES}/tool/core.py", line 5, in go
    raise ValueError("x")
ValueError: x
"""


@pytest.mark.parametrize(
    "start", ['  File "<frozen runpy>", line 88, in _run_code\n', ""]
)
def test_names_the_line_of_a_program_that_is_installed(start):
    raised = parse_exception(INSTALLED.format(start=start))
    assert raised is not None
    assert (raised.where.file, raised.where.line) == (f"{PACKAGES}/trainer/loop.py", 9)


@pytest.mark.parametrize(
    ("text", "line"),
    [("import sys\nfrom trainer.cli import main\n", 9), ("import tool\n", 8)],
)
def test_a_command_tells_whose_it_is(tmp_path, text, line):
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "train"
    command.write_text(text)
    # As of a library that calls what a command is.
    start = f"""  File "{command}", line 8, in <module>
    sys.exit(main())
  File "{PACKAGES}/click/core.py", line 7, in __call__
    return self.main(*args)
"""
    raised = parse_exception(INSTALLED.format(start=start))
    assert raised is not None
    assert raised.where.line == line
    gone = str(tmp_path / "lib")  # as of another host
    raised = parse_exception(INSTALLED.format(start=start.replace(str(tmp_path), gone)))
    assert raised.where.line == 8


def test_names_the_innermost_frame_where_no_frame_is_the_users():
    raised = parse_exception(LIBRARY_ONLY)
    assert raised is not None
    assert raised.where.file.endswith("tool/__main__.py")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just\nlines\n",
        "ValueError: said in a log line\n",
        "Traceback (most recent call last):\n",
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n',
        "Exception in thread Thread-1 (f):\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in f\nValueError: x\n',
    ],
)
def test_says_nothing_where_no_exception_ended_the_program(text):
    assert parse_exception(text) is None


def test_a_cut_beginning_does_not_matter(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import sys\nsys.stderr.write('x' * 100000)\n1 / 0")
    raised = parse_exception(stderr_of(path)[-65536:])
    assert raised is not None
    assert raised.where.line == 3


def test_last_line():
    assert last_line("a\n\x1b[31m[rank0]: b\x1b[0m\n \n") == "b"
    assert last_line("[rank0]: b\r\n") == "b"
    assert last_line("") == ""
