"""A pytest plugin for a job of mpiexec's: thread ranks become its processes."""

from datetime import timedelta

import allhands as dist
from harness import process_ranks

dist.init_process_group("mpi", timeout=timedelta(seconds=process_ranks.LIMIT))
process_ranks.become("mpi")
