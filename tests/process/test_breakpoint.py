"""The debugger on one rank, its input a pipe."""

import re
import subprocess
import sys

from harness.ranks import LIMIT

PROGRAM = """
import sys, multiprocessing
import allhands as dist

def main(rank, folder):
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group(store=store, rank=rank, world_size=2)
    answer = 42 + rank
    dist.breakpoint(rank=0)
    sys.stdout.write(f"rank {rank} goes on\\n")  # as one write: the ranks share it
    sys.stdout.flush()
    dist.destroy_process_group()

if __name__ == "__main__":
    start = multiprocessing.get_context("spawn")
    ranks = [start.Process(target=main, args=(r, sys.argv[1])) for r in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    sys.exit(sum(rank.exitcode for rank in ranks))
"""


def test_the_debugger_begins_in_the_callers_frame(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, tmp_path],
        input="p answer * 100\ncontinue\n",
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert "allhands.breakpoint(rank=0): the other ranks wait" in done.stdout
    before, _, after = done.stdout.partition("4200")
    assert "goes on" not in before
    assert sorted(re.findall(r"rank \d goes on", after)) == [
        "rank 0 goes on",
        "rank 1 goes on",
    ]


def test_the_debugger_needs_an_input(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, tmp_path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 2
    assert "breakpoint: this process has no standard input" in done.stderr
