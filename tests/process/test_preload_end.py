"""The end of ranks that were forked from a preloaded process."""

from harness.launcher import launch, program

# Says what of the program is destroyed at its end, and where that was held.
HOLD = """
    import json
    import own

    class Held:
        def __init__(self, where):
            self.where = where

        def __del__(self):
            print("destroyed, held by", self.where, flush=True)

    json.held, own.held, held = Held("json"), Held("own"), Held("the program")
"""


def ending_of(tmp_path, *lines):
    """What a program that holds objects says at its end; modules are preloaded."""
    program(tmp_path, "def function(): pass", "own.py")
    path = program(tmp_path, HOLD + "".join(f"\n    {line}" for line in lines))
    done = launch("-n2", "--preload=json,own", path)
    assert (done.returncode, done.stderr) == (0, "")
    told = sorted(line.partition(" ")[2] for line in done.stdout.splitlines())
    assert told[::2] == told[1::2]
    return told[::2]


def test_what_was_loaded_before_the_fork_is_left_to_the_end_of_the_process(tmp_path):
    assert ending_of(tmp_path) == [
        "destroyed, held by own",
        "destroyed, held by the program",
    ]


def test_a_rank_with_a_thread_ends_as_without(tmp_path):
    sleep = "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
    assert ending_of(tmp_path, "import threading, time", sleep) == [
        "destroyed, held by json",
        "destroyed, held by own",
        "destroyed, held by the program",
    ]


def test_a_file_that_a_preloaded_module_holds_is_written_out(tmp_path):
    path = program(
        tmp_path,
        f"""
        import json, os
        json.held = open(f"{tmp_path}/{{os.environ['RANK']}}", "w")
        json.held.write("all of it")
        file = open(f"{tmp_path}/main{{os.environ['RANK']}}", "w")
        file.write("this, too")
        """,
    )
    done = launch("-n2", "--preload=json", path)
    assert (done.returncode, done.stderr) == (0, "")
    for rank in range(2):
        assert (tmp_path / f"{rank}").read_text() == "all of it"
        assert (tmp_path / f"main{rank}").read_text() == "this, too"
