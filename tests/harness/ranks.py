"""Ranks for tests: as threads of this process, or as processes of their own.

Thread ranks each have a World over one HashStore; processes find each other over a
FileStore in a temporary folder. Both are bounded in time and collect every rank's
outcome, so a test sees all errors, not the first.
"""

import contextlib
import os
import pathlib
import pickle
import subprocess
import tempfile
import textwrap
import threading
import time
import traceback
from datetime import timedelta

import allhands as dist
from allhands.groups.world import World, use
from allhands.store import HashStore
from harness.prepared import PreparedProgram

# Only what hangs meets these limits, however slow the machine is. Whoever knows most of
# what is missing speaks first: a group, then the ranks here, then pytest's timeout.
GROUP_LIMIT = 150.0  # seconds that ranks wait for each other
LIMIT = 200.0  # seconds that a set of ranks may take
BACKEND = "native"  # of worlds for which no test asks for one; see gloo_ranks


class RanksFailed(AssertionError):
    """Some ranks raised or did not end; `errors` are the exceptions by rank."""

    def __init__(self, text, errors):
        super().__init__(text)
        self.errors = errors


def run_ranks(size, body, *, timeout=GROUP_LIMIT, backend=None, init=True):
    """Run `body(rank)` in `size` threads, each a rank of one world; results by rank."""
    store = HashStore()
    results = [None] * size
    errors = {}

    def run(rank):
        try:
            with use(World()):
                if init:
                    dist.init_process_group(
                        backend,
                        store=store,
                        rank=rank,
                        world_size=size,
                        timeout=timedelta(seconds=timeout),
                    )
                try:
                    results[rank] = body(rank)
                finally:
                    if dist.is_initialized():
                        dist.destroy_process_group()
        except BaseException as error:  # told apart by whoever reads `errors`
            errors[rank] = error

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
        if thread.is_alive():
            raise RanksFailed(f"{thread.name} still runs after {LIMIT} s", errors)
    if errors:
        text = "".join(
            f"rank {rank}:\n{''.join(traceback.format_exception(error))}"
            for rank, error in sorted(errors.items())
        )
        raise RanksFailed(text, errors)
    return results


def outcomes(size, body, **options):
    """Run `body(rank)` as `run_ranks` does; the exception of each rank, or None."""

    def catch(rank):
        try:
            body(rank)
        except Exception as error:
            return error
        return None

    return run_ranks(size, catch, **options)


class Processes:
    """Ranks as processes that run one piece of source; use as a context manager.

    In the source, `dist`, `np`, `rank` and `size` are there, the world is initialized,
    `say(x)` sends a line to the test (`read(rank)`), `give(x)` sets the rank's result
    (`join()`), `stay()` waits to be killed, `until_it_waits(thread)` returns once the
    thread sleeps in one call, and `resident()` is the rank's memory in bytes.
    """

    PRELUDE = textwrap.dedent(
        """
        import os, pickle, signal, sys, threading, time
        from datetime import timedelta
        import numpy as np
        import allhands as dist

        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        folder = os.environ["TEST_FOLDER"]

        def say(value):
            print(value, flush=True)

        def stay():
            time.sleep(999)

        def until_it_waits(thread):
            # In a process that was forked, Python has the number of another.
            is_main = thread is threading.main_thread()
            task = os.getpid() if is_main else thread.native_id
            before, num_alike = None, 0
            while num_alike < 3:
                time.sleep(0.001)  # without the GIL, so that nobody waits for that
                frame = sys._current_frames().get(thread.ident)
                now = frame and (id(frame), frame.f_lasti)
                with open(f"/proc/self/task/{task}/stat") as file:
                    is_asleep = file.read().rpartition(")")[2].split()[0] == "S"
                num_alike = num_alike + 1 if is_asleep and now == before else 0
                before = now

        def resident():  # counted now; statm and status may lag by megabytes
            with open("/proc/self/smaps_rollup") as file:
                return next(int(s.split()[1]) << 10 for s in file if s[:4] == "Rss:")

        def give(value):
            with open(f"{folder}/result{rank}", "wb") as file:
                pickle.dump(value, file)

        from allhands.store import FileStore
        dist.init_process_group(
            store=FileStore(f"{folder}/store", size), rank=rank, world_size=size,
            timeout=timedelta(seconds=float(os.environ["TEST_TIMEOUT"])))
        """
    )

    def __init__(self, size, source, *, timeout=GROUP_LIMIT, hosts=None):
        """`hosts`: of each rank, the host on which it takes itself to be."""
        self._stack = contextlib.ExitStack()
        self.folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        environment = os.environ | {
            "WORLD_SIZE": str(size),
            "TEST_FOLDER": self.folder,
            "TEST_TIMEOUT": str(timeout),
        }
        program = self.PRELUDE + textwrap.dedent(source)
        self.ranks = [
            PreparedProgram(
                "allhands",
                program,
                environment | {"RANK": str(rank)} | self._host(hosts, rank),
            )
            for rank in range(size)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.ranks:
            process.kill()
            process.wait()
            process.close()
        self._stack.close()

    def _host(self, hosts, rank):
        if hosts is None:
            return {}
        return {"ALLHANDS_HOST_ID": f"host {hosts[rank]}", "ALLHANDS_INTERFACES": "lo"}

    def read(self, rank):
        """The next line that `rank` said."""
        return self.ranks[rank].stdout.readline().strip()

    def join(self, *, codes=None):
        """Wait for all ranks, check exit codes (0 each), return what they gave."""
        end = time.monotonic() + LIMIT
        texts = [self._end_of(rank, end) for rank in range(len(self.ranks))]
        found = [process.returncode for process in self.ranks]
        assert found == (codes or [0] * len(found)), f"{found}\n" + "\n".join(texts)
        self.stderr = texts
        return [self._result(rank) for rank in range(len(found))]

    def _end_of(self, rank, end):
        """What a rank wrote to its stderr, once it has ended."""
        process = self.ranks[rank]
        try:
            return process.communicate(timeout=max(0, end - time.monotonic()))[1]
        except subprocess.TimeoutExpired:
            for hung in self.ranks:
                hung.kill()
            text = process.communicate()[1]
            raise AssertionError(
                f"rank {rank} still ran after {LIMIT} s; its stderr:\n{text}"
            ) from None

    def _result(self, rank):
        path = pathlib.Path(self.folder, f"result{rank}")
        return pickle.loads(path.read_bytes()) if path.exists() else None
