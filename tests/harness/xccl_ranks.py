"""A pytest plugin for ranks of `allhands run`: thread ranks become its processes."""

import allhands as dist
from harness import process_ranks

dist.init_process_group("native")
process_ranks.become("xccl", limit=30.0)  # to connect takes long on busy machines
