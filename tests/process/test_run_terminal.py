"""On a terminal: live displays, the keyboard, Ctrl-C."""

import json
import re

from harness.launcher import Terminal, program


def test_ranks_know_the_terminal(tmp_path):
    text = """
        import json, os
        names = ["TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"]
        print(json.dumps([os.environ.get(name) for name in names]))
    """
    terminal = Terminal(program(tmp_path, text), columns=90)
    assert terminal.wait() == 0
    (found,) = re.findall(rb"(\[\".*\])", terminal.output)
    assert json.loads(found) == ["1", "1", str(90 - len("[rank0] ")), "40"]


def test_a_rich_display_lives_beside_other_ranks(tmp_path):
    text = """
        import os, time
        from rich.progress import Progress
        if os.environ["RANK"] == "1":
            print("note")
        else:
            with Progress() as progress:
                task = progress.add_task("work", total=20)
                for _ in range(20):
                    time.sleep(0.02)
                    progress.update(task, advance=1, refresh=True)
    """
    terminal = Terminal("--nproc-per-node=2", program(tmp_path, text))
    assert terminal.wait() == 0
    states = re.findall(rb"\r\x1b\[2K\x1b\[36m\[rank0\]\x1b\[39m work", terminal.output)
    assert len(states) > 2
    assert b"[rank1]\x1b[39m note\r\n" in terminal.output
    assert b"100%" in terminal.output
    assert terminal.output.endswith(b"\x1b[?25h\x1b[0m")


def test_prompt_is_shown_and_the_keyboard_read(tmp_path):
    path = program(tmp_path, "print('Hello', input('Name? '))")
    terminal = Terminal(path)
    terminal.read_until(b"Name? ")
    terminal.type("Ada\n")
    assert terminal.wait() == 0
    assert b"Hello Ada\r\n" in terminal.output


def test_ctrl_c_reaches_each_rank_once(tmp_path):
    text = """
        import signal, sys, time
        count = 0
        def on_interrupt(*_):
            global count
            count += 1
        signal.signal(signal.SIGINT, on_interrupt)
        print("ready")
        while not count:
            time.sleep(0.05)
        time.sleep(0.2)
        print("interrupts:", count)
        sys.exit(7)
    """
    terminal = Terminal("--nproc-per-node=2", program(tmp_path, text))
    terminal.read_until(b"ready", 2)
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert terminal.output.count(b"interrupts: 1") == 2


def test_the_last_lines_stay_last(tmp_path):
    path = program(tmp_path, "print('50%', end='')\nraise ValueError('bad')")
    terminal = Terminal(path)
    assert terminal.wait() == 1
    lines = terminal.output.decode().splitlines()
    assert any(line.endswith("50%") for line in lines)
    assert "allhands run: rank 0 failed: ValueError: bad" in lines[-3]
