"""Many ranks for tests, forked from one process: a hundred take half a second."""

import os
import pickle
import subprocess
import sys
import tempfile
import textwrap

from harness.ranks import GROUP_LIMIT, LIMIT

_PROGRAM = textwrap.dedent(
    """
    import os, pickle, resource, signal, sys, time
    from datetime import timedelta
    import numpy as np
    import allhands as dist

    size, folder = int(sys.argv[1]), sys.argv[2]

    def cpu_seconds():
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def give(rank, value):
        with open(f"{folder}/{rank}", "wb") as file:
            pickle.dump(value, file)

    def be_rank(rank):
        dist.init_process_group(
            store=store, rank=rank, world_size=size,
            timeout=timedelta(seconds=float(sys.argv[3])))
        dist.barrier()
        give(rank, work(rank))
        dist.destroy_process_group()

    def meanwhile(pids):
        pass

    SOURCE

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            try:
                be_rank(rank)
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(1)
        pids.append(pid)
    told = meanwhile(pids)
    if told is not None:
        give("meanwhile", told)
    for pid in pids:
        os.waitpid(pid, 0)
    """
)


def run_forked(size, source):
    """Run `work(rank)` of `source` as `size` ranks that have met in a barrier.

    `source` may define `meanwhile(pids)`, which their parent calls; it reaps them after
    that. What the ranks' `work` returned, by rank, and what `meanwhile` did, under its
    name. Ranks that were killed are not in it.
    """
    program = _PROGRAM.replace("SOURCE", textwrap.dedent(source))
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(size), folder, str(GROUP_LIMIT)]
        job = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT,
        )
        assert job.returncode == 0, job.stderr
        results = {}
        for name in os.listdir(folder):
            with open(f"{folder}/{name}", "rb") as file:
                key = int(name) if name.isdigit() else name
                results[key] = pickle.load(file)
    return results
